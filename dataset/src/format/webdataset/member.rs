//! Reads a tar member by member.
//!
//! The crate `tar` reads the fields of a header. Its iterator is not used: it returns the offset of
//! a member's header but not of its extension headers, fails on PAX values with line breaks, and
//! takes the end of the file for the end of the tar.

use tar::{EntryType, Header};

use super::{
    CLASS_BYTES_MAX, FormatError, ReadAt, name,
    pax::{self, Pax},
};
use crate::format::{label, read_ahead::ReadAhead};

const BLOCK: usize = 512;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// The kind of the header that `tar --label` writes first: a name, and often no size.
const VOLUME_LABEL: u8 = b'V';
/// Largest size of a long name, or of PAX records; a path has 4 KiB at most.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Member {
    /// Offset of its first header, including those that extend it.
    pub(super) start: u64,
    /// Offset of its data.
    pub(super) data: u64,
    pub(super) len: u64,
    /// End of its padding.
    pub(super) end: u64,
    pub(super) name: Vec<u8>,
    /// Whether it is a file, and no folder, link or device.
    regular: bool,
    /// Whether its name is in its header, and not in one that extends it.
    pub(super) plain_name: bool,
}

impl Member {
    pub(super) fn from_index(start: u64, data: u64, len: u64, end: u64, name: Vec<u8>) -> Self {
        Self { start, data, len, end, name, regular: true, plain_name: true }
    }

    /// Key and extension, unless webdataset skips the member.
    pub(super) fn split(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (key, extension) =
            name::split(&self.name).filter(|_| self.regular && !name::is_meta(&self.name))?;
        Some((key.to_vec(), name::lower_case(extension)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A block of zeros.
    Marked,
    /// A block of zeros, or the end of the object after a member: a part of a tar.
    Anywhere,
}

pub(super) struct Members<'a> {
    ahead: ReadAhead<'a>,
    at: u64,
    end: End,
}

#[derive(Default)]
struct Extensions {
    start: Option<u64>,
    long_name: Option<Vec<u8>>,
    pax: Option<Pax>,
    has_long_link: bool,
}

impl<'a> Members<'a> {
    pub(super) fn new(object: &'a dyn ReadAt, at: u64, end: End) -> Self {
        Self { ahead: ReadAhead::new(object), at, end }
    }

    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// The current position: after the last member, that of the end mark.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn next(&mut self) -> Result<Option<Member>, FormatError> {
        let mut extensions = Extensions::default();
        loop {
            let at = self.at;
            let Some(header) = self.header(extensions.start.is_some())? else { return Ok(None) };
            let kind = header.entry_type();
            if kind.as_byte() == VOLUME_LABEL {
                let len = header.entry_size().unwrap_or(0);
                self.at = self.padded_end(at, at + BLOCK_BYTES, len)?;
                continue;
            }
            let is_extension = matches!(kind.as_byte(), b'x' | b'X' | b'g' | b'L' | b'K');
            if !is_extension {
                return self.member(&header, at, extensions).map(Some);
            }
            let records = self.extension(&header, at)?;
            extensions.take(kind, records, at)?;
        }
    }

    /// The class in the data of a member, if the data is one.
    pub(super) fn class(&mut self, member: &Member) -> Result<Option<i64>, FormatError> {
        let len = usize::try_from(member.len.min(CLASS_BYTES_MAX)).expect("at most 32");
        Ok(label::of_text(self.ahead.bytes(member.data, len)?))
    }

    /// The header at the current position, or `None` at the end of the tar.
    fn header(&mut self, extended: bool) -> Result<Option<Header>, FormatError> {
        let (at, found) = (self.at, self.ahead.object_len());
        if at == found && self.end == End::Anywhere && !extended {
            return Ok(None);
        }
        let needed = at.saturating_add(BLOCK_BYTES);
        if needed > found {
            let what = if extended { "the header after an extension" } else { "the end mark" };
            let what = if at < found { "the header of a member" } else { what };
            return Err(FormatError::Truncated { what, at, needed, found });
        }
        let block: [u8; BLOCK] = self.ahead.array(at)?;
        if block == [0; BLOCK] {
            let zeros = "zeros after an extension header";
            return if extended { Err(malformed(at, zeros.into())) } else { Ok(None) };
        }
        let header = Header::from_byte_slice(&block).clone();
        let computed = checksums(&block);
        match header.cksum() {
            Ok(sum) if computed.contains(&sum) => Ok(Some(header)),
            Ok(found) => {
                let what = "the header of a member";
                Err(FormatError::Checksum { what, at, found, computed: computed[0] })
            }
            Err(_) => Err(malformed(at, "without checksum".into())),
        }
    }

    /// Reads the data of an extension header and moves behind it.
    fn extension(&mut self, header: &Header, at: u64) -> Result<Vec<u8>, FormatError> {
        let size = size(header, at)?;
        let data = at + BLOCK_BYTES;
        if size > EXTENSION_BYTES_MAX {
            return Err(malformed(at, format!("an extension of {size} bytes, more than 1 MiB")));
        }
        self.at = self.padded_end(at, data, size)?;
        let len = usize::try_from(size).expect("at most 1 MiB");
        Ok(self.ahead.bytes(data, len)?.to_vec())
    }

    /// The member whose own header is at `at`; moves behind it.
    fn member(
        &mut self,
        header: &Header,
        at: u64,
        extensions: Extensions,
    ) -> Result<Member, FormatError> {
        let Extensions { start, long_name, pax, has_long_link: _ } = extensions;
        let pax = pax.unwrap_or_default();
        if pax.sparse || header.entry_type().is_gnu_sparse() {
            return Err(sparse(at));
        }
        let plain_name = long_name.is_none() && pax.path.is_none();
        let name = match (long_name, pax.path) {
            (Some(_), Some(_)) => return Err(malformed(at, "a member with two long names".into())),
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => header.path_bytes().into_owned(),
        };
        // Old tars mark a folder by a slash at the end of the name in its header.
        let old_folder = header.as_bytes()[156] == 0 && header.path_bytes().ends_with(b"/");
        let kind = header.entry_type();
        let len = match kind.as_byte() {
            // Like Python's tarfile, independent of the size in the header.
            b'1'..=b'6' => 0,
            _ if old_folder => 0,
            _ => pax.size.map_or_else(|| size(header, at), Ok)?,
        };
        let data = at + BLOCK_BYTES;
        let end = self.padded_end(at, data, len)?;
        self.at = end;
        let regular = matches!(kind.as_byte(), b'0' | b'\0' | b'7') && !old_folder;
        Ok(Member { start: start.unwrap_or(at), data, len, end, name, regular, plain_name })
    }

    fn padded_end(&self, at: u64, data: u64, len: u64) -> Result<u64, FormatError> {
        let found = self.ahead.object_len();
        let end = len.checked_next_multiple_of(BLOCK_BYTES).and_then(|len| data.checked_add(len));
        let needed = end.unwrap_or(u64::MAX);
        end.filter(|end| *end <= found).ok_or(FormatError::Truncated {
            what: "a member",
            at,
            needed,
            found,
        })
    }
}

impl Extensions {
    fn take(&mut self, kind: EntryType, data: Vec<u8>, at: u64) -> Result<(), FormatError> {
        let twice = match kind.as_byte() {
            b'g' => return expect_harmless(&data, at),
            b'L' => self.long_name.replace(until_zero(data)).is_some(),
            b'K' => std::mem::replace(&mut self.has_long_link, true),
            _ => self.pax.replace(pax::parse(&data, at)?).is_some(),
        };
        self.start.get_or_insert(at);
        if twice {
            return Err(malformed(at, "the second extension of one kind for one member".into()));
        }
        Ok(())
    }
}

/// Refuses records for all following members if they change names or sizes: a sample does not
/// contain them.
fn expect_harmless(records: &[u8], at: u64) -> Result<(), FormatError> {
    match pax::parse(records, at)? {
        Pax { sparse: true, .. } => Err(sparse(at)),
        Pax { path: None, size: None, .. } => Ok(()),
        _ => Err(malformed(at, "a PAX header for all members that gives names or sizes".into())),
    }
}

fn until_zero(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    name
}

fn size(header: &Header, at: u64) -> Result<u64, FormatError> {
    header.entry_size().map_err(|_| malformed(at, "without size".into()))
}

/// The sum of a header's bytes; old tars added them as signed numbers.
fn checksums(block: &[u8; BLOCK]) -> [u32; 2] {
    let field = 148..156;
    let bytes = block.iter().enumerate();
    let bytes = bytes.map(|(at, byte)| if field.contains(&at) { b' ' } else { *byte });
    let unsigned = bytes.clone().map(u32::from).sum();
    let signed: i32 = bytes.map(|byte| i32::from(byte.cast_signed())).sum();
    [unsigned, u32::try_from(signed).unwrap_or(unsigned)]
}

fn sparse(at: u64) -> FormatError {
    FormatError::Unsupported {
        what: format!("the member at byte {at} is a sparse file, its bytes are not all in the tar"),
        instead: "write the tar without --sparse",
    }
}

fn malformed(at: u64, found: String) -> FormatError {
    let right = "a tar that `tar --list` reads without complaint is right";
    FormatError::Malformed { what: "the header of a member", at, found, right }
}
