//! Reads the columns of a schema: names and types in words, without the metadata of their users.

use super::flat::Table;

const DEPTH_MAX: u32 = 32;

/// `Type` of `Schema.fbs` by its number: the name, and for each field of its table the bytes, 0 for a text.
///
/// Fields that follow from others, or say how a reader may treat values, are left out.
const TYPES: [(&str, &[usize]); 27] = [
    ("none", &[]),
    ("null", &[]),
    ("int", &[4, 1]),
    ("float", &[2]),
    ("binary", &[]),
    ("utf8", &[]),
    ("bool", &[]),
    ("decimal", &[4, 4, 4]),
    ("date", &[2]),
    ("time", &[2, 4]),
    ("timestamp", &[2, 0]),
    ("interval", &[2]),
    ("list", &[]),
    ("struct", &[]),
    ("union", &[2]),
    ("fixed binary", &[4]),
    ("fixed list", &[4]),
    ("map", &[]),
    ("duration", &[2]),
    ("large binary", &[]),
    ("large utf8", &[]),
    ("large list", &[]),
    ("run-end encoded", &[]),
    ("binary view", &[]),
    ("utf8 view", &[]),
    ("list view", &[]),
    ("large list view", &[]),
];

/// The columns of the table `Schema`, each with its name and its type.
pub(super) fn columns(schema: Table<'_>) -> Option<Vec<(String, String)>> {
    let order = match schema.scalar(0, [0; 2])? {
        [0, 0] => "",
        _ => "big-endian ",
    };
    // Two offsets may lead to one table, but each byte of a sound schema is read once.
    let mut left = Left(schema.buffer_bytes());
    let fields = schema.tables(1)?.into_iter();
    let column =
        |field| Some((left.name(field)?, format!("{order}{}", left.type_of(field, DEPTH_MAX)?)));
    fields.map(column).collect()
}

/// Bytes that may still be read.
struct Left(usize);

impl Left {
    fn text(&mut self, table: Table<'_>, number: usize) -> Option<String> {
        let text = table.text(number)?;
        self.0 = self.0.checked_sub(text.len() + 1)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn name(&mut self, field: Table<'_>) -> Option<String> {
        self.text(field, 0)
    }

    /// The type of the table `Field`, and of the columns in it.
    fn type_of(&mut self, field: Table<'_>, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let [code] = field.scalar(2, [0])?;
        let Some((word, parts)) = TYPES.get(usize::from(code)) else {
            return Some(format!("type {code}"));
        };
        let mut said = (*word).to_owned();
        let of = if parts.is_empty() { field } else { field.table(3)? };
        for (number, bytes) in parts.iter().enumerate() {
            said.push(' ');
            said.push_str(&match bytes {
                0 => self.text(of, number)?,
                1 => u8::from_le_bytes(of.scalar(number, [0])?).to_string(),
                2 => i16::from_le_bytes(of.scalar(number, [0; 2])?).to_string(),
                _ => i32::from_le_bytes(of.scalar(number, [0; 4])?).to_string(),
            });
        }
        let children = field.tables(5)?;
        if !children.is_empty() {
            let mut parts = Vec::new();
            for child in children {
                parts.push(format!("{}: {}", self.name(child)?, self.type_of(child, depth)?));
            }
            said = format!("{said} {{{}}}", parts.join(", "));
        }
        // A column with a dictionary has the indexes in its batches.
        Some(if field.has(4) { format!("dictionary of {said}") } else { said })
    }
}
