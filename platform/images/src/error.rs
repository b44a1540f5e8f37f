//! What is wrong with an image.

/// Why an image could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not the first bytes of a known format.
    #[error("these bytes are no image: they begin like neither JPEG nor PNG nor WebP")]
    NoImage,
    /// Of a format that is known and not decoded, or no image.
    #[error("this is no JPEG, PNG or WebP image, but {0}")]
    Other(&'static str),
    /// A header may say so.
    #[error("the image has no pixels")]
    Empty,
    /// Refused before it is decoded.
    #[error(
        "the image has {width} x {height} pixels, and {pixels_max} in all are allowed (`limits: {{ pixels }}`)"
    )]
    TooLarge {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
    /// libjpeg-turbo's own words.
    #[error("this JPEG image cannot be decoded: {message}")]
    Jpeg {
        /// What it said.
        message: String,
    },
    /// Of the decoder of PNG.
    #[error("this PNG image cannot be decoded")]
    Png(#[source] ::png::DecodingError),
    /// Of the decoder of WebP.
    #[error("this WebP image cannot be decoded")]
    WebP(#[source] image_webp::DecodingError),
    /// An animation has no one image.
    #[error("this WebP file is an animation: store its frames as images")]
    Animation,
    /// The end is missing.
    #[error("the file is truncated")]
    Truncated,
    /// The system has none left.
    #[error("there is no memory for a decoder of JPEG")]
    NoMemory,
}
