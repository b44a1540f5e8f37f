//! Sizes and rectangles of images, in pixels.

/// The size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of rows.
    pub height: u32,
    /// The number of columns.
    pub width: u32,
}

impl Size {
    /// Rows times columns.
    #[must_use]
    pub fn pixels(self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }
}

/// A rectangle of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first row.
    pub top: u32,
    /// Its first column.
    pub left: u32,
    /// Its rows and columns.
    pub size: Size,
}
