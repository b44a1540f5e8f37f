//! Finds the splits of a dataset by the names of its objects, so that none is trained on that was held out.

use std::collections::BTreeSet;

use super::Pattern;
use crate::{
    Dataset,
    format::{
        Files,
        image_folder::class_of,
        objects::{Classes, Objects},
    },
    index::IndexError,
    source::{
        Listing, Selection as _,
        names::{HELD_OUT, TRAIN, is_one_of, lossy},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    Train,
    HeldOut,
}

/// Refuses objects of a test or validation split beside others, unless the user picked the files: a pattern
/// other than `**` gets a note, `**` and a manifest nothing.
pub(super) fn check(
    dataset: &Dataset,
    place: &str,
    Objects { listing, classes, notes, .. }: &mut Objects,
) -> Result<(), IndexError> {
    match dataset.files() {
        Some(Files::Manifest(_)) => return Ok(()),
        Some(Files::Glob(pattern)) if matches!(pattern.as_str(), "**" | "**/*") => return Ok(()),
        _ => {}
    }
    if *classes == Classes::Directories {
        notes.extend(classes_that_are_splits(place, listing));
        return Ok(());
    }
    let (mut held_out, mut train, mut unmarked) = (None, None, None);
    for object in 0..listing.objects.len() {
        let path = listing.listed(object).path;
        let first = match of(&path) {
            Some(Split::HeldOut) => &mut held_out,
            Some(Split::Train) => &mut train,
            None => &mut unmarked,
        };
        first.get_or_insert(path);
    }
    let (Some(held_out), Some(other)) = (held_out, train.as_ref().or(unmarked.as_ref())) else {
        return Ok(());
    };
    let of_split = train.as_ref().map(|path| pattern_for(path));
    let pattern = of_split.into_iter().chain(pattern_by_start(other));
    let pattern = pattern.into_iter().find(|pattern| picks_training_only(pattern, listing));
    let pick = pattern.map_or_else(
        || "a `manifest`, which lists them".to_owned(),
        |pattern| format!("`glob`, for example `{pattern}`"),
    );
    let (held_out, other) = (lossy(&held_out), lossy(other));
    if dataset.files().is_some() {
        notes.push(format!(
            "{place}: `{held_out}` is of a test or validation split by its name, and is read beside `{other}`"
        ));
        return Ok(());
    }
    Err(IndexError::SplitsTogether { root: place.to_owned(), held_out, other, pick })
}

/// A pattern for the files of the training split, of which `path` is one.
fn pattern_for(path: &[u8]) -> String {
    let mut parts = path.rsplit(|byte| *byte == b'/').map(|part| (of(part), part));
    let name = parts.next().map_or(&[][..], |(_, name)| name);
    let directory = parts.find(|(split, _)| *split == Some(Split::Train));
    match (of(name), directory) {
        (None, Some((_, directory))) => format!("**/{}/**", lossy(directory)),
        _ => "**/*train*".to_owned(),
    }
}

/// A pattern for the files beside this one whose names start as its own does before the first digit.
fn pattern_by_start(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let digit = name.iter().position(u8::is_ascii_digit).filter(|at| *at > 0)?;
    let start = std::str::from_utf8(&path[..path.len() - name.len() + digit]).ok()?;
    let is_literal = !start.contains(['*', '?', '[', ']', '{', '}', '\\']);
    is_literal.then(|| format!("{start}*"))
}

/// Whether a pattern takes some of the files, and none that is held out.
fn picks_training_only(pattern: &str, listing: &Listing) -> bool {
    let Ok(pattern) = Pattern::new(pattern) else { return false };
    let paths = (0..listing.objects.len()).map(|object| listing.listed(object).path);
    let mut taken = paths.filter(|path| pattern.takes(path)).peekable();
    taken.peek().is_some() && taken.all(|path| of(&path) != Some(Split::HeldOut))
}

/// A note if the classes of an image folder are splits by their names.
fn classes_that_are_splits(place: &str, listing: &Listing) -> Option<String> {
    let names = listing.directories.iter().map(|it| class_of(&it.name));
    let classes: BTreeSet<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let splits: Vec<_> = classes.iter().map(|name| of(name)).collect();
    let is_each = splits.iter().all(Option::is_some);
    let is_both = splits.contains(&Some(Split::Train)) && splits.contains(&Some(Split::HeldOut));
    (is_each && is_both).then(|| {
        let names: Vec<_> = classes.iter().map(|name| format!("`{}`", lossy(name))).collect();
        format!(
            "{place}: its classes are {}, which are splits by their names; the source of a training is one of them",
            names.join(" and ")
        )
    })
}

/// The split that the last part of a path with a word for one names; a part with words for both is skipped.
fn of(path: &[u8]) -> Option<Split> {
    path.rsplit(|byte| *byte == b'/').find_map(|part| {
        let has = |wanted: &[&str]| {
            let mut words = part.split(|byte| !byte.is_ascii_alphanumeric());
            words.any(|word| is_one_of(word, wanted))
        };
        match (has(&TRAIN), has(&HELD_OUT)) {
            (true, false) => Some(Split::Train),
            (false, true) => Some(Split::HeldOut),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_told_by_the_words_in_a_name() {
        for (path, expected) in [
            ("mnist-train.tfrecord-00000-of-00001", Some(Split::Train)),
            ("mnist-test.tfrecord-00000-of-00001", Some(Split::HeldOut)),
            ("validation-00000-of-00002.parquet", Some(Split::HeldOut)),
            ("val2017/1.npz", Some(Split::HeldOut)),
            ("dev-clean/1.flac", Some(Split::HeldOut)),
            ("train/test_batch.bin", Some(Split::HeldOut)),
            ("test/part-0.parquet", Some(Split::HeldOut)),
            ("text_document_train.bin", Some(Split::Train)),
            ("X_TEST.npy", Some(Split::HeldOut)),
            ("data_batch_1.bin", None),
            ("latest.tar", None),
            ("contest-1.tar", None),
            ("train_test_split.tar", None),
            ("trainable.tar", None),
        ] {
            assert_eq!(of(path.as_bytes()), expected, "{path}");
        }
    }
}
