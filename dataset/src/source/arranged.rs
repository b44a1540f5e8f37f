//! Puts the objects of a directory into the order of a listing.
//!
//! There is no allocation for each object, and at no time more than two copies of all names exist:
//! a directory may hold many millions of them.

use std::cmp::Ordering;

use super::{Directory, Listing, Object, names::python_order};

/// Objects of one directory, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Found {
    names: Vec<u8>,
    objects: Vec<Object>,
}

impl Found {
    pub(super) fn push(&mut self, name: &[u8], size: u64, mtime_ns: i64) {
        self.names.extend_from_slice(name);
        self.objects.push(Object { size, mtime_ns, name_end: self.names.len() as u64 });
    }

    /// Appends the objects that another thread found in the same directory.
    pub(super) fn append(&mut self, mut other: Self) {
        if self.objects.is_empty() {
            *self = other;
            return;
        }
        let start = self.names.len() as u64;
        self.names.append(&mut other.names);
        let moved = other.objects.into_iter();
        self.objects.extend(moved.map(|it| Object { name_end: start + it.name_end, ..it }));
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    fn name(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.objects[before].name_end);
        let place = |at: u64| usize::try_from(at).expect("it lies in memory");
        &self.names[place(start)..place(self.objects[index].name_end)]
    }

    /// The same objects in [`python_order`] of their names, with no unused capacity.
    pub(super) fn arranged(mut self) -> Self {
        let order = Order::of(&self);
        let mut keys = order.keys(&self);
        keys.sort_unstable_by(|left, right| order.compare(&self, left, right));
        let mut names = Vec::with_capacity(self.names.len());
        for key in &keys {
            names.extend_from_slice(self.name(key.index));
        }
        // Before there is a second copy of the objects.
        self.names = Vec::new();
        let mut name_end = 0;
        let objects = keys.into_iter().map(|key| {
            let object = self.objects[key.index];
            let before = key.index.checked_sub(1).map_or(0, |it| self.objects[it].name_end);
            name_end += object.name_end - before;
            Object { name_end, ..object }
        });
        let objects = objects.collect();
        Self { names, objects }
    }
}

struct Key {
    /// The first bytes in which names of the directory differ, so that full names are rarely
    /// compared.
    differing: u64,
    index: usize,
}

struct Order {
    /// Number of leading bytes that all names of the directory share.
    common: usize,
    /// Whether the order of bytes is that of characters.
    is_utf8: bool,
}

impl Order {
    fn of(found: &Found) -> Self {
        let mut order = Self { common: usize::MAX, is_utf8: true };
        for index in 0..found.len() {
            let name = found.name(index);
            let same = name.iter().zip(found.name(0)).take_while(|(left, right)| left == right);
            order.common = order.common.min(same.count());
            order.is_utf8 = order.is_utf8 && str::from_utf8(name).is_ok();
        }
        order
    }

    fn keys(&self, found: &Found) -> Vec<Key> {
        let key = |index| {
            let mut first = [0; 8];
            let rest = &found.name(index)[self.common..];
            let len = rest.len().min(first.len());
            first[..len].copy_from_slice(&rest[..len]);
            Key { differing: u64::from_be_bytes(first), index }
        };
        (0..found.len()).map(key).collect()
    }

    fn compare(&self, found: &Found, left: &Key, right: &Key) -> Ordering {
        let names = || (found.name(left.index), found.name(right.index));
        if self.is_utf8 {
            let whole = || names().0.cmp(names().1);
            left.differing.cmp(&right.differing).then_with(whole)
        } else {
            python_order(names().0, names().1)
        }
    }
}

#[derive(Debug)]
pub(super) struct Filled {
    pub(super) name: Vec<u8>,
    pub(super) mtime_ns: Option<i64>,
    /// In the order of [`Found::arranged`].
    pub(super) found: Found,
}

/// Makes a listing of directories in any order.
pub(super) fn listing(mut directories: Vec<Filled>) -> Listing {
    if directories.iter().all(|it| str::from_utf8(&it.name).is_ok()) {
        directories.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    } else {
        directories.sort_unstable_by(|left, right| python_order(&left.name, &right.name));
    }
    let mut listing = Listing::default();
    let mut all = Found::default();
    for Filled { name, mtime_ns, found } in directories {
        listing.directories.push(Directory { name, mtime_ns, first_object: all.len() });
        all.append(found);
    }
    Listing { objects: all.objects, names: all.names, ..listing }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(names: &[Vec<u8>]) -> Vec<(Vec<u8>, u64)> {
        let mut found = Found::default();
        for (name, size) in names.iter().zip(0..) {
            found.push(name, size, 0);
        }
        let arranged = found.arranged();
        (0..arranged.len())
            .map(|index| (arranged.name(index).to_vec(), arranged.objects[index].size))
            .collect()
    }

    fn naive(names: &[Vec<u8>]) -> Vec<(Vec<u8>, u64)> {
        let mut expected: Vec<_> = names.iter().cloned().zip(0..).collect();
        expected.sort_by(|left, right| python_order(&left.0, &right.0));
        expected
    }

    proptest! {
        #[test]
        fn any_names_are_sorted_as_python_does_and_keep_their_sizes(
            beginning in prop::collection::vec(any::<u8>(), 0..12),
            rests in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..12), 0..40),
            first in any::<prop::sample::Index>(),
        ) {
            let mut names: Vec<Vec<u8>> =
                rests.into_iter().map(|rest| [beginning.clone(), rest].concat()).collect();
            if !names.is_empty() {
                let middle = first.index(names.len());
                names.rotate_left(middle);
            }
            prop_assert_eq!(sorted(&names), naive(&names));
        }

        #[test]
        fn text_is_sorted_by_more_than_the_bytes_of_the_key(
            rests in prop::collection::btree_set("[ab\u{e9}]{0,20}", 0..40),
        ) {
            let names: Vec<Vec<u8>> =
                rests.into_iter().rev().map(|rest| format!("image_{rest}").into_bytes()).collect();
            prop_assert_eq!(sorted(&names), naive(&names));
        }
    }

    #[test]
    fn what_threads_found_apart_is_one_directory() {
        let mut found = Found::default();
        let mut more = Found::default();
        found.push(b"b", 2, 20);
        more.push(b"a", 1, 10);
        more.push(b"ccc", 3, 30);
        found.append(more);
        let name = b"some".to_vec();
        let filled = Filled { name: name.clone(), mtime_ns: Some(5), found: found.arranged() };
        let listing = listing(vec![filled]);
        let object = |size, mtime_ns, name_end| Object { size, mtime_ns, name_end };
        assert_eq!(listing.objects, [object(1, 10, 1), object(2, 20, 2), object(3, 30, 5)]);
        assert_eq!(listing.names, b"abccc");
        assert_eq!(listing.directories, [Directory { name, mtime_ns: Some(5), first_object: 0 }]);
    }
}
