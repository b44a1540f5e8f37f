//! Sizes and rectangles of images, in pixels.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub height: u32,
    pub width: u32,
}

impl Size {
    #[must_use]
    pub fn pixels(self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub top: u32,
    pub left: u32,
    pub size: Size,
}
