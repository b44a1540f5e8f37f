//! Warnings to the user: TensorFlow has none of Python, and writes its own to standard error.

pub(crate) fn warn(message: &str) {
    eprintln!("warning: tierfeed: {message}");
}
