//! What objects say about their samples where the bytes of a sample do not: types, shapes, columns.
//!
//! All objects of a dataset must say the same, because a trainer decodes all samples in one way.

use serde::{Deserialize, Serialize};

use super::{FormatError, piece::some_of};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stated {
    /// A sample is elements of one type, without a header.
    Elements(Elements),
    /// A sample is rows of a table.
    Table(Table),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elements {
    /// Their type in NumPy's spelling, such as `<f4`.
    pub dtype: String,
    /// Number of elements of each axis; `None` if samples differ in it.
    pub shape: Option<Vec<u64>>,
    /// The filters that the stored bytes went through, such as a compression.
    pub filters: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Each with its name or path, and its type; `None` for a type that fits any other.
    pub columns: Vec<(String, Option<String>)>,
    pub order: Order,
}

/// The meaning of the order of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Readers find columns by their names, in any order.
    ByName,
    /// Readers find columns by their position.
    ByPlace,
    /// The user selected the columns in this order.
    Selected,
}

impl Stated {
    /// Elements whose number is not stated, such as tokens.
    pub(crate) fn tokens(dtype: &str) -> Self {
        let dtype = dtype.to_owned();
        Self::Elements(Elements { dtype, shape: None, filters: Vec::new() })
    }

    /// Compares this with what a further object says, and keeps what is true of both.
    ///
    /// # Errors
    ///
    /// [`FormatError::OtherContent`] if one way of decoding does not fit both.
    pub fn join(&mut self, other: &Self) -> Result<(), FormatError> {
        let differ = |found: String, first: String| Err(FormatError::OtherContent { found, first });
        match (self, other) {
            (Self::Elements(first), Self::Elements(found)) => {
                let is_same = (&first.dtype, &first.filters) == (&found.dtype, &found.filters);
                // Of another length they cannot be taken for one another.
                let is_mistakable = first.shape != found.shape
                    && first.shape.is_some()
                    && elements(first) == elements(found);
                if !is_same || is_mistakable {
                    return differ(found.to_string(), first.to_string());
                }
                if first.shape != found.shape {
                    first.shape = None;
                }
                Ok(())
            }
            (Self::Table(first), Self::Table(found)) => match first.difference(found) {
                None => Ok(()),
                Some((found, first)) => differ(found, first),
            },
            (first, found) => differ(found.kind().to_owned(), first.kind().to_owned()),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Elements(_) => "elements",
            Self::Table(_) => "rows of a table",
        }
    }
}

fn elements(of: &Elements) -> Option<u64> {
    of.shape.as_ref()?.iter().try_fold(1_u64, |product, axis| product.checked_mul(*axis))
}

impl std::fmt::Display for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "elements of `{}`", self.dtype)?;
        if let Some(shape) = &self.shape {
            write!(f, " in the shape {shape:?}")?;
        }
        if self.filters.is_empty() {
            return Ok(());
        }
        write!(f, ", stored by {}", self.filters.join(" and "))
    }
}

impl Table {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// A part of `found` that this table does not have, in words, then the part that this one has instead.
    fn difference(&self, found: &Self) -> Option<(String, String)> {
        let ordered = |table: &Self| {
            let mut columns = table.columns.clone();
            if table.order == Order::ByName {
                columns.sort();
            }
            columns
        };
        let (first, found) = (ordered(self), ordered(found));
        if !first.iter().map(|it| &it.0).eq(found.iter().map(|it| &it.0)) {
            let said = |columns: &[(String, Option<String>)]| {
                let names = columns.iter().map(|(name, _)| name.as_str());
                format!("rows of the columns {}", some_of(names))
            };
            return Some((said(&found), said(&first)));
        }
        first.iter().zip(&found).find_map(|((name, first), (_, found))| {
            let (first, found) = (first.as_ref()?, found.as_ref()?);
            let said = |of: &str| format!("rows whose column {} is {of}", some_of([name.as_str()]));
            (first != found).then(|| (said(found), said(first)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: &str, shape: &[u64], filters: &[&str]) -> Stated {
        let filters = filters.iter().map(|it| (*it).to_owned()).collect();
        let shape = Some(shape.to_vec());
        Stated::Elements(Elements { dtype: dtype.to_owned(), shape, filters })
    }

    fn table(order: Order, columns: &[(&str, Option<&str>)]) -> Stated {
        let columns = columns.iter().map(|(name, it)| ((*name).to_owned(), it.map(str::to_owned)));
        Stated::Table(Table { columns: columns.collect(), order })
    }

    #[track_caller]
    fn check_refused(first: &Stated, found: &Stated, expected: &str) {
        let message = first.clone().join(found).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn elements_of_another_type_shape_or_filter_are_refused() {
        let first = of("<f4", &[2, 3], &[]);
        first.clone().join(&first).unwrap();
        check_refused(&first, &of("<i4", &[2, 3], &[]), "elements of `<i4` in the shape [2, 3]");
        check_refused(&first, &of(">f4", &[2, 3], &[]), "`>f4`");
        check_refused(&first, &of("<f4", &[3, 2], &[]), "[3, 2], and those of the first file");
        check_refused(&first, &of("<f4", &[2, 3], &["Shuffle"]), "stored by Shuffle");
        check_refused(&first, &table(Order::ByName, &[]), "rows of a table");
        let mut joined = first;
        joined.join(&of("<f4", &[4, 3], &[])).unwrap();
        let Stated::Elements(joined) = joined else { panic!("{joined:?}") };
        assert_eq!(joined.shape, None, "chunks of several lengths");
    }

    #[test]
    fn columns_are_compared_by_name_or_place_with_their_types() {
        let [a, b] = [("a", Some("int32")), ("b", Some("float"))];
        table(Order::ByName, &[a, b]).join(&table(Order::ByName, &[b, a])).unwrap();
        table(Order::ByName, &[a, b]).join(&table(Order::ByName, &[a, ("b", None)])).unwrap();
        let placed = |columns: &[_]| table(Order::ByPlace, columns);
        check_refused(&placed(&[a, b]), &placed(&[b, a]), "columns `b`, `a`, and");
        check_refused(&placed(&[a, b]), &placed(&[a]), "the columns `a`, and");
        let text = ("a", Some("text"));
        check_refused(&placed(&[a, b]), &placed(&[text, b]), "whose column `a` is text, and those");
    }
}
