//! The fields of samples beside the one that became a row: for each sample the values of each field that the
//! dataset hands out, as a string of which the graph makes a tensor.

use serde::Deserialize;
use tierfeed_dataset::format::fields::{self, FieldType};
use tierfeed_transform::Container;

#[derive(Debug, Default)]
pub(crate) struct Fields {
    container: Option<Container>,
    wanted: Vec<WantedField>,
}

/// A field as `tierfeed/tensorflow/fields.py` asks for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedField {
    name: String,
    kind: Kind,
    /// How many values each sample has.
    values: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Bytes,
    Integers,
    Floats,
}

impl Kind {
    fn of(self) -> FieldType {
        match self {
            Self::Bytes => FieldType::Bytes,
            Self::Integers => FieldType::Integers,
            Self::Floats => FieldType::Floats,
        }
    }
}

impl Fields {
    pub(crate) fn new(container: Option<&Container>, wanted: Vec<WantedField>) -> Self {
        Self { container: container.cloned(), wanted }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The error says why a sample with these stored bytes lacks a field.
    pub(crate) fn of_sample(&self, stored: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let container = self.container.as_ref().ok_or("its samples have no fields")?;
        let all = fields::split(container, stored).map_err(|error| error.to_string())?;
        let values = |wanted: &WantedField| {
            let WantedField { name, kind, values } = wanted;
            let field = all.iter().find(|field| field.name == *name).ok_or_else(|| {
                let names: Vec<_> = all.iter().map(|field| field.name.as_str()).collect();
                format!("it has no field `{name}` (`fields`); it has {}", names.join(", "))
            })?;
            let of = kind.of();
            let found = field
                .values(of)
                .ok_or_else(|| format!("its field `{name}` is not {} (`fields`)", of.name()))?;
            let count = if of == FieldType::Bytes { 1 } else { found.len() / 8 };
            if count == *values {
                return Ok(found.into_owned());
            }
            Err(format!("its field `{name}` has {count} values, and `fields` says {values}"))
        };
        self.wanted.iter().map(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_transform::container::Column;

    use super::*;

    fn fields(wanted: &str) -> Fields {
        let column = |name: &str, encoding: &str, size| Column {
            name: name.to_owned(),
            encoding: encoding.to_owned(),
            size,
        };
        let columns = vec![column("class", "int8", Some(1)), column("text", "str", None)];
        Fields::new(Some(&Container::Columns { columns }), serde_json::from_str(wanted).unwrap())
    }

    /// The class 7 and the text `ab`.
    const SAMPLE: &[u8] = b"\x02\0\0\0\x07ab";

    #[test]
    fn values_come_in_the_order_in_which_they_are_wanted() {
        let both = r#"[{"name": "text", "kind": "bytes", "values": 1},
            {"name": "class", "kind": "integers", "values": 1}]"#;
        let expected = vec![b"ab".to_vec(), 7_i64.to_ne_bytes().to_vec()];
        assert_eq!(fields(both).of_sample(SAMPLE), Ok(expected));
        assert!(fields("[]").is_none());
    }

    #[test]
    fn what_a_sample_does_not_have_is_named() {
        let wanted = |name, kind, values| {
            let it = format!(r#"[{{"name": "{name}", "kind": "{kind}", "values": {values}}}]"#);
            fields(&it).of_sample(SAMPLE).unwrap_err()
        };
        assert_eq!(
            wanted("label", "integers", 1),
            "it has no field `label` (`fields`); it has class, text"
        );
        assert_eq!(wanted("text", "floats", 1), "its field `text` is not numbers (`fields`)");
        assert_eq!(
            wanted("class", "integers", 2),
            "its field `class` has 1 values, and `fields` says 2"
        );
    }
}
