//! Reads files that the formats' own writers made, and compares with the results of their own
//! readers.

mod arrays;
