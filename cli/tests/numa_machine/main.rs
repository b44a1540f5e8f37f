//! The whole way on a machine with a CXL node.
