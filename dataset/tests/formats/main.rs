//! Reads files that the formats' own writers made, and compares with what their own readers read.

mod arrays;
