//! Listings in a comparable form, and selections for tests.

use tierfeed_dataset::source::{Listed, Listing, Selection, SourceError, Store};

pub(crate) struct All;

impl Selection for All {
    fn enters(&self, _: &[u8]) -> bool {
        true
    }

    fn takes(&self, _: &[u8]) -> bool {
        true
    }
}

/// Selects files by the end of their name, in directories that are not hidden.
pub(crate) struct Ending(pub(crate) &'static [u8]);

impl Selection for Ending {
    fn enters(&self, path: &[u8]) -> bool {
        !path.rsplit(|byte| *byte == b'/').next().unwrap().starts_with(b".")
    }

    fn takes(&self, path: &[u8]) -> bool {
        path.ends_with(self.0)
    }
}

pub(crate) fn list(store: &dyn Store) -> Result<Listing, SourceError> {
    store.list(&All, &mut |_| ())
}

/// The objects in the form for opening them, in their order.
pub(crate) fn objects(listing: &Listing) -> Vec<Listed> {
    let mut listed = Vec::new();
    let ends = listing.directories.iter().skip(1).map(|it| it.first_object);
    let ends = ends.chain([listing.objects.len()]);
    for (directory, end) in listing.directories.iter().zip(ends) {
        for index in directory.first_object..end {
            let start = index.checked_sub(1).map_or(0, |before| listing.objects[before].name_end);
            let object = listing.objects[index];
            let place = |at: u64| usize::try_from(at).unwrap();
            let name = &listing.names[place(start)..place(object.name_end)];
            let mut parts = name.splitn(2, |byte| *byte == 0);
            let name = parts.next().unwrap();
            let mut path = directory.name.clone();
            if !path.is_empty() && !name.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let etag = parts.next().map(|etag| String::from_utf8(etag.to_vec()).unwrap());
            listed.push(Listed { path, size: object.size, mtime_ns: object.mtime_ns, etag });
        }
    }
    listed
}

pub(crate) fn paths(listing: &Listing) -> Vec<String> {
    let lossy = |it: Listed| String::from_utf8_lossy(&it.path).into_owned();
    objects(listing).into_iter().map(lossy).collect()
}

pub(crate) fn directories(listing: &Listing) -> Vec<String> {
    let lossy = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    listing.directories.iter().map(|it| lossy(&it.name)).collect()
}
