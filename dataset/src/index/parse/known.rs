//! The samples of unchanged objects, taken from an earlier index.

use std::collections::BTreeMap;

use crate::{
    Dataset,
    format::{Found, Parsed, Records, Stated},
    index::{Index, image::Kind},
    source::Listed,
};

/// The objects of an earlier index of the same dataset, by path.
pub(in crate::index) struct Known<'a> {
    index: Option<&'a Index>,
    objects: BTreeMap<Vec<u8>, usize>,
    /// The statement of all objects about their samples.
    stated: Option<Stated>,
}

impl<'a> Known<'a> {
    /// Empty if `previous` is the index of another dataset.
    pub(in crate::index) fn of(dataset: &Dataset, previous: Option<&'a Index>) -> Self {
        let index = previous.filter(|it| it.is_of(dataset));
        let objects = index.map_or_else(BTreeMap::new, |it| {
            (0..it.image.objects()).map(|number| (it.image.object_path(number), number)).collect()
        });
        Self { index, objects, stated: index.and_then(Index::stated) }
    }

    /// The samples of an object, if the earlier index has it with the same size, time and `ETag`.
    pub(super) fn object(&self, listed: &Listed) -> Option<Parsed> {
        let (index, number) = (self.index?, *self.objects.get(&listed.path)?);
        let image = &index.image;
        let samples = || match image.header.kind {
            Kind::Objects => Found::Whole,
            Kind::Records => Found::Records(Records {
                offset: image.start(number),
                record_bytes: image.header.record_bytes,
                count: u64::from(image.count(number)),
            }),
            Kind::Ranges => Found::Ranges(index.ranges_of(number)),
        };
        image.is_as_listed(number, listed).then(|| Parsed::new(samples(), self.stated.clone()))
    }
}
