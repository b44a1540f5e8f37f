//! Names the leaves of an item by its structure, which the index has as PyTorch writes trees
//! (`treespec_dumps` of `torch/utils/_pytree.py`), and says how each is encoded.

use serde::Deserialize;
use tierfeed_transform::container::Column;

/// A node of the structure, or a leaf, which has no type.
#[derive(Deserialize)]
struct Node {
    r#type: Option<String>,
    context: Option<String>,
    #[serde(default)]
    children_spec: Vec<Node>,
}

/// The names of the leaves: keys of dictionaries and numbers, with dots between, such as `image` or
/// `1.boxes`.
pub(super) fn names(structure: &str) -> Option<Vec<String>> {
    // The version of the form stands before the root.
    let (_, root): (u32, Node) = serde_json::from_str(structure).ok()?;
    let mut names = Vec::new();
    put_names(&root, "", &mut names);
    Some(names)
}

fn put_names(node: &Node, above: &str, names: &mut Vec<String>) {
    if node.r#type.is_none() {
        names.push(if above.is_empty() { "0".to_owned() } else { above.to_owned() });
        return;
    }
    let keys = node.keys();
    for (number, child) in node.children_spec.iter().enumerate() {
        let own = keys.as_ref().map_or_else(|| number.to_string(), |keys| keys[number].clone());
        let name = if above.is_empty() { own } else { format!("{above}.{own}") };
        put_names(child, &name, names);
    }
}

impl Node {
    fn keys(&self) -> Option<Vec<String>> {
        let keys: Vec<String> = serde_json::from_str(self.context.as_deref()?).ok()?;
        (keys.len() == self.children_spec.len()).then_some(keys)
    }
}

pub(super) fn columns(names: Vec<String>, formats: &[String]) -> Option<Vec<Column>> {
    let column = |(name, format): (String, &String)| Column {
        name,
        encoding: encoding(format).to_owned(),
        size: None,
    };
    (names.len() == formats.len()).then(|| names.into_iter().zip(formats).map(column).collect())
}

/// The encoding of MDS that has the same bytes; others keep their names.
fn encoding(format: &str) -> &str {
    match format {
        "float" => "float64",
        "bool" => "uint8",
        _ if format.starts_with("file:") => "bytes",
        _ => format,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_named_by_keys_and_numbers() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let pair = format!(
            r#"{{"type": "builtins.tuple", "context": "null", "children_spec": [{leaf}, {leaf}]}}"#
        );
        let nested = format!(
            r#"[1, {{"type": "builtins.dict", "context": "[\"image\", \"more\"]", "children_spec": [{leaf}, {pair}]}}]"#
        );
        assert_eq!(names(&nested).unwrap(), ["image", "more.0", "more.1"]);
        assert_eq!(names(&format!("[1, {pair}]")).unwrap(), ["0", "1"]);
        assert_eq!(names(&format!("[1, {leaf}]")).unwrap(), ["0"]);
        assert_eq!(names("[1]"), None);
        let deep = "[".repeat(100_000);
        assert_eq!(names(&deep), None);
    }

    #[test]
    fn each_leaf_has_an_encoding_or_none_is_known() {
        let formats = ["jpeg", "float", "file:jpg", "pil"].map(str::to_owned);
        let names = || ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let found = columns(names(), &formats).unwrap();
        let encodings: Vec<_> = found.iter().map(|it| it.encoding.as_str()).collect();
        assert_eq!(encodings, ["jpeg", "float64", "bytes", "pil"]);
        assert_eq!(columns(names(), &formats[1..]), None);
    }
}
