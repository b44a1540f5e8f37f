//! Orders shards like the `index.json` that their writer left beside them.

use super::manifest;
use crate::{
    format::{FormatError, litdata as lit, mds as streaming},
    index::{IndexError, lossy},
    source::{Listing, Store},
};

const INDEX: &[u8] = b"index.json";

pub(super) fn mds(
    place: &str,
    store: &dyn Store,
    listing: &Listing,
) -> Result<(Listing, Vec<streaming::Shard>), IndexError> {
    let index = ShardIndex::read(place, store, listing)?;
    let shards = streaming::shards(&index.text).map_err(|source| index.broken(source))?;
    let mut chosen = Listing::default();
    for shard in &shards {
        if let Err(missing) = index.choose(&shard.basename, listing, &mut chosen) {
            return Err(shard.only_compressed().map_or(missing, |source| index.broken(source)));
        }
    }
    listing.copy_other_directories(&mut chosen);
    Ok((chosen, shards))
}

pub(super) fn litdata(
    place: &str,
    store: &dyn Store,
    listing: &Listing,
) -> Result<(Listing, lit::Index), IndexError> {
    let index = ShardIndex::read(place, store, listing)?;
    let chunks = lit::index(&index.text).map_err(|source| index.broken(source))?;
    let mut chosen = Listing::default();
    for chunk in &chunks.chunks {
        index.choose(&chunk.filename, listing, &mut chosen)?;
    }
    listing.copy_other_directories(&mut chosen);
    Ok((chosen, chunks))
}

struct ShardIndex {
    place: String,
    text: Vec<u8>,
}

impl ShardIndex {
    fn read(place: &str, store: &dyn Store, listing: &Listing) -> Result<Self, IndexError> {
        let Some((_, object)) = manifest::find(listing, INDEX) else {
            return Err(IndexError::NoShardIndex {
                root: place.to_owned(),
                found: directory_with_index(listing),
            });
        };
        let listed = listing.listed(object);
        let place = format!("{place}/{}", lossy(INDEX));
        let opened = store.open(&listed)?;
        let text = super::read_index(&*opened);
        opened.verify()?;
        let text = text.map_err(|source| IndexError::Format { object: place.clone(), source })?;
        Ok(Self { place, text })
    }

    fn broken(&self, source: FormatError) -> IndexError {
        IndexError::Format { object: self.place.clone(), source }
    }

    fn choose(
        &self,
        name: &str,
        listing: &Listing,
        chosen: &mut Listing,
    ) -> Result<(), IndexError> {
        let missing =
            || IndexError::ShardMissing { index: self.place.clone(), name: name.to_owned() };
        let (directory, object) = manifest::find(listing, name.as_bytes()).ok_or_else(missing)?;
        listing.copy_object(object, &listing.directories[directory], chosen);
        Ok(())
    }
}

fn directory_with_index(listing: &Listing) -> Option<String> {
    (0..listing.directories.len())
        .find(|number| listing.objects_of(*number).any(|it| listing.name_of(it).0 == INDEX))
        .map(|number| lossy(&listing.directories[number].name))
}
