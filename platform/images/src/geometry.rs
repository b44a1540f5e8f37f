//! Sizes of images, and rectangles in them.

use std::ops::Range;

/// The size of an image in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
}

impl Size {
    /// How many pixels these are.
    #[must_use]
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// The size with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { width: self.height, height: self.width }
    }
}

/// A rectangle of pixels in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub left: u32,
    /// The first row.
    pub top: u32,
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
}

impl Region {
    /// All pixels of an image.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { left: 0, top: 0, width: size.width, height: size.height }
    }

    /// The size of the rectangle.
    #[must_use]
    pub fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// The columns.
    ///
    /// # Panics
    ///
    /// If the rectangle ends beyond 2^32 pixels.
    #[must_use]
    pub fn columns(self) -> Range<u32> {
        self.left..self.left.checked_add(self.width).expect("regions lie in images")
    }

    /// The rows.
    ///
    /// # Panics
    ///
    /// If the rectangle ends beyond 2^32 pixels.
    #[must_use]
    pub fn rows(self) -> Range<u32> {
        self.top..self.top.checked_add(self.height).expect("regions lie in images")
    }

    /// Whether the rectangle has pixels, all of them in an image of this size.
    #[must_use]
    pub fn is_within(self, size: Size) -> bool {
        let fits = |start: u32, length: u32, end: u32| {
            length > 0 && start.checked_add(length).is_some_and(|it| it <= end)
        };
        fits(self.left, self.width, size.width) && fits(self.top, self.height, size.height)
    }

    /// The rectangle in the image of which `outer` was cut out.
    #[must_use]
    pub fn moved_by(self, outer: Self) -> Self {
        Self { left: self.left + outer.left, top: self.top + outer.top, ..self }
    }
}
