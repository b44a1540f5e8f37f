//! Reports made by hand, for tests.

use super::{Conditions, FORMAT, Matrix, Report};
use crate::inventory::Inventory;

/// A report without any figure.
pub(crate) fn minimal(inventory: &Inventory) -> Report {
    Report {
        format: FORMAT,
        host: inventory.host.clone(),
        tiers: Vec::new(),
        numa: Matrix::default(),
        pairs: Vec::new(),
        storage: Vec::new(),
        object_stores: Vec::new(),
        transfers: Vec::new(),
        views: Vec::new(),
        comparisons: Vec::new(),
        skipped: Vec::new(),
        conditions: Conditions::default(),
        inventory: inventory.clone(),
    }
}
