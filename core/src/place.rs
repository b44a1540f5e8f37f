//! Where a sample lies in the tiers of a node.

use alloc::vec::Vec;
use core::{
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

use crate::{id::TierId, space::Piece};

/// Pieces of chunks of one tier, in the order of the sample's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub tier: TierId,
    /// At least one piece; together as long as the sample, or up to 63 bytes longer.
    pub pieces: Pieces,
}

/// Almost every place is one piece, which takes no memory of its own.
#[derive(Debug, Clone)]
pub enum Pieces {
    One(Piece),
    Several(Vec<Piece>),
}

impl From<Vec<Piece>> for Pieces {
    fn from(pieces: Vec<Piece>) -> Self {
        match pieces.as_slice() {
            [only] => Self::One(*only),
            _ => Self::Several(pieces),
        }
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        pieces.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for Pieces {
    type Target = [Piece];

    fn deref(&self) -> &[Piece] {
        match self {
            Self::One(piece) => core::slice::from_ref(piece),
            Self::Several(pieces) => pieces,
        }
    }
}

impl DerefMut for Pieces {
    fn deref_mut(&mut self) -> &mut [Piece] {
        match self {
            Self::One(piece) => core::slice::from_mut(piece),
            Self::Several(pieces) => pieces,
        }
    }
}

impl<'a> IntoIterator for &'a Pieces {
    type Item = &'a Piece;
    type IntoIter = core::slice::Iter<'a, Piece>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Pieces {
    type Item = &'a mut Piece;
    type IntoIter = core::slice::IterMut<'a, Piece>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Pieces {}

impl Hash for Pieces {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
