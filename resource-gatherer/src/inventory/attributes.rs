//! Reads what the firmware rates a memory node at (ACPI HMAT, as sysfs passes it on).
//!
//! These are rated values for the best initiator only, never measured ones. `access1` names the best
//! CPU and is preferred; `access0` may name a GPU or a network card instead. The value 0 means that
//! the firmware does not know.
//!
//! Source: Linux `Documentation/admin-guide/mm/numaperf.rst`; tables with 0 exist in the field.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sysroot::{numbered_entries, optional_number};

/// The statement of the firmware about the way from the best initiator to a memory node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rated {
    /// The nodes from which the values hold; empty if the firmware names none.
    pub initiators: Vec<u32>,
    pub read_latency_ns: Option<u64>,
    pub write_latency_ns: Option<u64>,
    pub read_bytes_per_s: Option<u64>,
    pub write_bytes_per_s: Option<u64>,
}

impl Rated {
    pub(crate) fn is_empty(&self) -> bool {
        self.read_latency_ns.is_none()
            && self.write_latency_ns.is_none()
            && self.read_bytes_per_s.is_none()
            && self.write_bytes_per_s.is_none()
    }
}

/// The rated values of the node in `directory` (`…/nodeN`), or `None` if there are none.
pub(crate) fn read(directory: &Path) -> Option<Rated> {
    let classes = ["access1/initiators", "access0/initiators"];
    classes.map(|class| read_class(&directory.join(class))).into_iter().find(|it| !it.is_empty())
}

fn read_class(initiators: &Path) -> Rated {
    let known = |name: &str| optional_number(&initiators.join(name)).filter(|value| *value > 0);
    let rate = |name: &str| known(name)?.checked_mul(1 << 20);
    Rated {
        initiators: numbered_entries(initiators, "node"),
        read_latency_ns: known("read_latency"),
        write_latency_ns: known("write_latency"),
        read_bytes_per_s: rate("read_bandwidth"),
        write_bytes_per_s: rate("write_bandwidth"),
    }
}
