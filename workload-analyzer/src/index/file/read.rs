//! Reads an index file and refuses what does not hold.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufReader, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use tierfeed_core::units::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{
    CHECKSUM_BYTES, CLASS_BYTES, DIRECTORY_BYTES, HEADER_BYTES, MAGIC, OBJECT_BYTES, VERSION,
};
use crate::index::{
    Damage, Format, IndexError,
    layout::{Class, Directory, Layout, Object},
};

pub(in crate::index) fn read(path: &Path) -> Result<Layout, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    let mut sections = Sections { reader: BufReader::new(file), hash: Xxh3::new() };
    let header = read_header(&mut sections, path, len)?;
    let layout = read_body(&mut sections, &header).map_err(|fault| match fault {
        Fault::Io(source) => unreadable(source),
        Fault::Damage(damage) => IndexError::Damaged { path: path.to_owned(), damage },
    })?;
    let damage = |damage| IndexError::Damaged { path: path.to_owned(), damage };
    refuse_nonsense(&layout).map_err(damage)?;
    Ok(layout)
}

struct Header {
    format: u32,
    record_bytes: u64,
    root: usize,
    classes: usize,
    directories: usize,
    objects: usize,
    labels: usize,
    names: usize,
}

/// What can go wrong behind the header.
enum Fault {
    Io(io::Error),
    Damage(Damage),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// Reads sections of a known length and hashes them on the way.
struct Sections {
    reader: BufReader<File>,
    hash: Xxh3,
}

impl Sections {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.reader.read_exact(bytes)?;
        self.hash.update(bytes);
        Ok(())
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn i64(&mut self) -> io::Result<i64> {
        self.u64().map(u64::cast_signed)
    }
}

/// Reads the counts. When it returns, they add up to the length of the file.
fn read_header(sections: &mut Sections, path: &Path, len: u64) -> Result<Header, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let foreign = || IndexError::Foreign { path: path.to_owned() };
    let header_bytes = (HEADER_BYTES + CHECKSUM_BYTES) as u64;
    if len < MAGIC.len() as u64 || sections.take(MAGIC.len()).map_err(unreadable)? != MAGIC {
        return Err(foreign());
    }
    let wrong_length = |expected| IndexError::Length {
        path: path.to_owned(),
        found: Bytes(len),
        expected: Bytes(expected),
    };
    if len < header_bytes {
        return Err(wrong_length(header_bytes));
    }
    let found = sections.u32().map_err(unreadable)?;
    if found != VERSION {
        return Err(IndexError::Version { path: path.to_owned(), found, expected: VERSION });
    }
    let format = sections.u32().map_err(unreadable)?;
    let record_bytes = sections.u64().map_err(unreadable)?;
    let mut counts = [0_u64; 6];
    for count in &mut counts {
        *count = sections.u64().map_err(unreadable)?;
    }
    let widths = [1, CLASS_BYTES as u64, DIRECTORY_BYTES as u64, OBJECT_BYTES as u64, 1, 1];
    let body = counts
        .iter()
        .zip(widths)
        .fold(0_u64, |sum, (count, width)| sum.saturating_add(count.saturating_mul(width)));
    let expected = body.saturating_add(header_bytes);
    if expected != len {
        return Err(wrong_length(expected));
    }
    let [root, classes, directories, objects, labels, names] =
        counts.map(|count| usize::try_from(count).expect("no count is above the file's length"));
    Ok(Header { format, record_bytes, root, classes, directories, objects, labels, names })
}

fn read_body(sections: &mut Sections, header: &Header) -> Result<Layout, Fault> {
    let root = PathBuf::from(OsString::from_vec(sections.take(header.root)?));
    let mut classes = Vec::with_capacity(header.classes);
    for _ in 0..header.classes {
        classes.push((sections.u64()?, sections.u32()?));
    }
    let mut directories = Vec::with_capacity(header.directories);
    for _ in 0..header.directories {
        directories.push((sections.u64()?, sections.i64()?));
    }
    let mut objects = Vec::with_capacity(header.objects);
    for _ in 0..header.objects {
        let (size, mtime_ns, name_end) = (sections.u64()?, sections.i64()?, sections.u64()?);
        objects.push(Object { size, mtime_ns, name_end });
    }
    let labels = sections.take(header.labels)?;
    let names = sections.take(header.names)?;
    let expected = sections.hash.digest();
    if sections.u64()? != expected {
        return Err(Damage::Checksum.into());
    }
    let format = match (header.format, header.record_bytes) {
        (0, 0) => Format::ImageFolder,
        (1, record_bytes @ 1..) => Format::Raw { record_bytes: Bytes(record_bytes) },
        _ => return Err(Damage::Format.into()),
    };
    let mut labels = Labels { bytes: &labels, start: 0 };
    let classes = classes
        .into_iter()
        .map(|(end, first_object)| Ok(Class { name: labels.up_to(end)?, first_object }));
    let classes = classes.collect::<Result<_, Damage>>()?;
    let directories = directories
        .into_iter()
        .map(|(end, mtime_ns)| Ok(Directory { name: labels.up_to(end)?, mtime_ns }));
    let directories = directories.collect::<Result<_, Damage>>()?;
    Ok(Layout { root, format, classes, directories, objects, names })
}

/// Cuts names one after the other from where the last one ended.
struct Labels<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl Labels<'_> {
    fn up_to(&mut self, end: u64) -> Result<Vec<u8>, Damage> {
        let end = usize::try_from(end).map_err(|_| Damage::Names)?;
        let name = self.bytes.get(self.start..end).ok_or(Damage::Names)?;
        self.start = end;
        Ok(name.to_vec())
    }
}

/// The invariants that a checksum does not give: whoever wrote the file may have meant harm.
fn refuse_nonsense(layout: &Layout) -> Result<(), Damage> {
    if !layout.root.is_absolute() {
        return Err(Damage::Escape);
    }
    refuse_wrong_names(layout)?;
    refuse_wrong_classes(layout)?;
    if let Format::Raw { record_bytes } = layout.format {
        let is_whole = |object: &Object| object.size.is_multiple_of(record_bytes.0);
        if !layout.objects.iter().all(is_whole) {
            return Err(Damage::Records);
        }
    }
    let total = layout.objects.iter().try_fold(0_u64, |sum, object| sum.checked_add(object.size));
    if total.is_none() { Err(Damage::Sizes) } else { Ok(()) }
}

fn refuse_wrong_names(layout: &Layout) -> Result<(), Damage> {
    let mut start = 0;
    for object in &layout.objects {
        if object.name_end < start || object.name_end > layout.names.len() as u64 {
            return Err(Damage::Names);
        }
        start = object.name_end;
    }
    if start != layout.names.len() as u64 {
        return Err(Damage::Names);
    }
    let is_the_source = |name: &[u8]| name.is_empty() && layout.directories.is_empty();
    let objects = (0..layout.objects.len()).map(|object| layout.name_of(object));
    if !objects.into_iter().all(|name| stays_below(name) || is_the_source(name)) {
        return Err(Damage::Escape);
    }
    let is_class = |class: &Class| stays_below(&class.name) && !class.name.contains(&b'/');
    let is_directory =
        |directory: &Directory| directory.name.is_empty() || stays_below(&directory.name);
    if layout.classes.iter().all(is_class) && layout.directories.iter().all(is_directory) {
        Ok(())
    } else {
        Err(Damage::Escape)
    }
}

/// Whether a name, put behind a directory, names something in or below it.
fn stays_below(name: &[u8]) -> bool {
    !name.contains(&0)
        && name.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

fn refuse_wrong_classes(layout: &Layout) -> Result<(), Damage> {
    let firsts: Vec<u32> = layout.classes.iter().map(|class| class.first_object).collect();
    let starts_rightly = match layout.format {
        Format::ImageFolder => firsts.first() == Some(&0),
        Format::Raw { .. } => firsts.is_empty(),
    };
    let rises = firsts.is_sorted_by(|left, right| left < right);
    let stays_inside = firsts.last().is_none_or(|last| (*last as usize) < layout.objects.len());
    if starts_rightly && rises && stays_inside { Ok(()) } else { Err(Damage::Classes) }
}
