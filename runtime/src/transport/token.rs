//! The secret by which manager, agents and commands authenticate each other over the network.
//!
//! It is never sent: each end proves that it has it ([`super::mutual_tls`]). Each job has one of 256 random
//! bits, in a file that only its owner can read. It is never an argument of a command
//! (`/proc/PID/cmdline` is public) and never printed.

use std::{
    fmt::{self, Write as _},
    fs,
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str::FromStr,
};

use ring::hkdf;

const BYTES: usize = 32;

const SALT: &[u8] = b"tierfeed";

/// The token of a job: 256 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; BYTES]);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("a token is {} hexadecimal digits, this has {found} characters or others", BYTES * 2)]
    Malformed { found: usize },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: mode {mode:03o}; only its owner may read a token: chmod 600", .path.display())]
    Exposed { path: PathBuf, mode: u32 },
}

impl Token {
    /// A new token from the system's random source.
    pub fn generate() -> Result<Self, TokenError> {
        random().map(Self)
    }

    /// Reads a token from its file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is readable by others, or holds no token.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text).map_err(failed)?;
        text.trim().parse()
    }

    /// Writes the token to a new file that only its owner can read.
    ///
    /// # Errors
    ///
    /// If the file exists already, or it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::Io { path: path.to_owned(), source };
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        writeln!(file, "{}", self.to_hex()).map_err(failed)
    }

    #[must_use]
    pub fn to_hex(&self) -> String {
        let mut text = String::with_capacity(BYTES * 2);
        for byte in self.0 {
            write!(text, "{byte:02x}").unwrap_or_default();
        }
        text
    }

    /// A token derived for `purpose`; it reveals nothing of this one.
    ///
    /// # Panics
    ///
    /// Never: HKDF-SHA-256 yields 32 bytes.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> Self {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(&self.0);
        let mut derived = [0; BYTES];
        extracted
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(&mut derived))
            .expect("HKDF-SHA-256 yields 32 bytes");
        Self(derived)
    }

    /// The secret itself, as the seed of a key.
    pub(crate) fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Whether `shown` is this token, compared in constant time.
    #[must_use]
    pub fn matches(&self, shown: &str) -> bool {
        let Ok(shown) = shown.parse::<Self>() else { return false };
        let difference =
            self.0.iter().zip(shown.0).fold(0, |all, (own, other)| all | (own ^ other));
        std::hint::black_box(difference) == 0
    }
}

/// A random number that distinguishes the processes that work as one node.
pub fn incarnation() -> Result<u64, TokenError> {
    random().map(u64::from_ne_bytes)
}

fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let path = Path::new("/dev/urandom");
    let failed = |source| TokenError::Io { path: path.to_owned(), source };
    let mut bytes = [0; N];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let malformed = || TokenError::Malformed { found: text.chars().count() };
        let digits = text.as_bytes();
        if digits.len() != BYTES * 2 {
            return Err(malformed());
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or_else(malformed);
            let value = digit(0)? * 16 + digit(1)?;
            *byte = u8::try_from(value).expect("two hexadecimal digits are a byte");
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_saved_token_loads_and_matches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::generate().unwrap();
        token.save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let loaded = Token::load(&path).unwrap();
        assert_eq!(loaded, token);
        assert!(matches!(token.save(&path), Err(TokenError::Io { .. })), "no file is overwritten");
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        Token::generate().unwrap().save(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Token::load(&path), Err(TokenError::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn one_wrong_digit_is_a_wrong_token() {
        let token = Token::generate().unwrap();
        let right = token.to_hex();
        assert!(token.matches(&right));
        for at in 0..right.len() {
            let digit = if &right[at..=at] == "0" { "1" } else { "0" };
            let wrong = format!("{}{digit}{}", &right[..at], &right[at + 1..]);
            assert!(!token.matches(&wrong));
        }
        assert!(!token.matches(""));
        assert!(!token.matches(&right[1..]));
    }

    #[test]
    fn what_is_derived_differs_by_token_and_purpose() {
        let [one, other] = [0, 1].map(|_| Token::generate().unwrap());
        assert_eq!(one.derive(b"a"), one.derive(b"a"));
        assert_ne!(one.derive(b"a"), one.derive(b"b"));
        assert_ne!(one.derive(b"a"), other.derive(b"a"));
        assert_ne!(one.derive(b"a"), one);
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let right = Token::generate().unwrap().to_hex();
        for wrong in ["", &right[1..], &"é".repeat(32), &"g".repeat(64), &right.repeat(2)] {
            assert!(matches!(wrong.parse::<Token>(), Err(TokenError::Malformed { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token::generate().unwrap();
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
