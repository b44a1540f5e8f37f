//! Reads the trees in `fixtures/`; their `README.md` says how they are written.

use crate::inventory::numbers;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File(Vec<u8>),
    Link(String),
}

pub(crate) fn names() -> Vec<String> {
    let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures")).unwrap();
    let files = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        files.filter_map(|file| file.strip_suffix(".tree").map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

pub(crate) fn text(name: &str) -> String {
    let path = format!("{}/fixtures/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths and their entries, in the order of the text.
pub(crate) fn parse(text: &str) -> Vec<(String, Entry)> {
    let mut entries: Vec<(String, Entry)> = Vec::new();
    let mut block_from = 0;
    for line in text.lines() {
        if let Some(part) = line.strip_prefix('|') {
            for (path, entry) in &mut entries[block_from..] {
                let Entry::File(content) = entry else { panic!("{path}: a link has no lines") };
                content.extend(part.strip_prefix(' ').unwrap_or(part).bytes().chain(*b"\n"));
            }
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            let (path, entry) = parse_line(line);
            block_from = entries.len();
            entries.extend(expand(path).into_iter().map(|path| (path, entry.clone())));
        }
    }
    // A file that was given no lines still has its end of line.
    for (_, entry) in &mut entries {
        if *entry == Entry::File(Vec::new()) {
            *entry = Entry::File(b"\n".to_vec());
        }
    }
    entries
}

fn parse_line(line: &str) -> (&str, Entry) {
    if let Some((path, target)) = line.split_once(" -> ") {
        return (path, Entry::Link(target.to_owned()));
    }
    let (path, content) = line.split_once(" =").unwrap_or_else(|| panic!("what is {line:?}?"));
    let content = match content.strip_prefix("x ") {
        Some(digits) => bytes(digits),
        None if content.trim().is_empty() => Vec::new(),
        None => format!("{}\n", content.trim_start()).into_bytes(),
    };
    (path, Entry::File(content))
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.trim().as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (list, after) = rest.split_once('}').unwrap();
    let list = numbers(list).unwrap_or_else(|| panic!("{path}: no list of numbers"));
    list.iter().map(|number| format!("{before}{number}{after}")).collect()
}

#[test]
fn a_tree_is_files_links_lines_and_numbers() {
    let text = "# remark\na/b = c d\n\na/{1-2} =\n| x\n|\n| y\nl -> ../t\ne =\nh =x 00ff\n";
    let file = |path: &str, content: &[u8]| (path.to_owned(), Entry::File(content.to_vec()));
    assert_eq!(
        parse(text),
        [
            file("a/b", b"c d\n"),
            file("a/1", b"x\n\ny\n"),
            file("a/2", b"x\n\ny\n"),
            ("l".to_owned(), Entry::Link("../t".to_owned())),
            file("e", b"\n"),
            file("h", &[0, 255]),
        ]
    );
}
