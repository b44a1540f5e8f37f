//! Finds the samples in every object, with the parser of the format.

mod gathered;
mod known;

use super::{IndexError, Progress, Stage, choose::Chosen, parallel};
use crate::{
    Format,
    format::{
        Parsed,
        objects::{Sidecars, read_index},
    },
    source::{Listed, Store},
};
pub(super) use gathered::Gathered;
pub(super) use known::Known;

/// The samples of all chosen objects. Unchanged objects that `known` has are taken from there; it is not called where
/// sizes tell all.
pub(super) fn samples<'a>(
    format: &Format,
    store: &dyn Store,
    chosen: &Chosen,
    known: impl FnOnce() -> Known<'a>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Gathered, IndexError> {
    let objects = &chosen.objects.listing.objects;
    let mut gathered = Gathered::default();
    for (number, object) in objects.iter().enumerate() {
        let found = format.rules().of_size(object.size);
        match found.map_err(|source| chosen.broken(number, source))? {
            Some(found) => gathered.push(chosen, number, found.into())?,
            None => break,
        }
    }
    if gathered.objects == objects.len() {
        return Ok(gathered);
    }
    let known = known();
    let parse = |number: usize| {
        let listed = chosen.objects.listing.listed(number);
        // Data beside an object may have changed while the object did not.
        let known =
            if chosen.objects.sidecars.is_of(number) { None } else { known.object(&listed) };
        known.map_or_else(|| parse(format, store, chosen, number, &listed), Ok)
    };
    let take = |number, parsed| gathered.push(chosen, number, parsed);
    parallel::in_order(objects.len(), Stage::Reading, parse, take, progress)?;
    Ok(gathered)
}

fn parse(
    format: &Format,
    store: &dyn Store,
    chosen: &Chosen,
    number: usize,
    listed: &Listed,
) -> Result<Parsed, IndexError> {
    let opened = store.open(listed)?;
    let parsed = match &chosen.objects.sidecars {
        Sidecars::Shards(shards) => shards.parse(&*opened, number),
        Sidecars::Index(indexes) => match &indexes[number] {
            Some(index) => {
                let beside = store.open(index)?;
                let text = read_index(&*beside);
                beside.verify()?;
                let parsed = text.and_then(|text| format.rules().parse(&*opened, Some(&text)));
                opened.verify()?;
                return parsed.map_err(|source| chosen.broken_at(index, source));
            }
            None => format.rules().parse(&*opened, None),
        },
        Sidecars::Nothing => format.rules().parse(&*opened, None),
    };
    // A change of the object explains the parser's error, so it is reported first.
    opened.verify()?;
    parsed.map_err(|source| chosen.broken(number, source))
}
