//! Interleaves the memory of processes that are about to be started over several nodes.
//!
//! A process inherits the memory policy of the thread that starts it, over `fork` and `exec`. So a
//! thread sets the policy, starts the process, and restores its previous one: no code has to run in
//! the child before it becomes its program.

use std::{io, marker::PhantomData};

use tierfeed_units::NumaNode;

use crate::policy::{self, MPOL_PREFERRED_MANY, MPOL_WEIGHTED_INTERLEAVE};

/// How pages are distributed over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On the given nodes while they have room, then on the others, nearest first. Linux 5.15.
    PreferredMany,
    /// In turn on the given nodes, by the weights below
    /// `/sys/kernel/mm/mempolicy/weighted_interleave`. Linux 6.9.
    WeightedInterleave,
}

/// Why a policy was not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterleaveError {
    /// The list of nodes is empty.
    #[error("no NUMA node to put memory on; name at least one")]
    NoNodes,
    /// This process may set no policies.
    #[error(
        "this process may set no memory policy ({0}); in a container allow it, as by \
         --cap-add SYS_NICE"
    )]
    Denied(#[source] io::Error),
    /// The kernel lacks the mode, or a node has no memory.
    #[error(
        "the kernel knows no policy {mode:?} on NUMA nodes {nodes:?}; PreferredMany needs \
         Linux 5.15, WeightedInterleave needs 6.9, and every node must have memory"
    )]
    Unknown {
        /// Mode that the caller requested.
        mode: Mode,
        /// Nodes that the caller requested.
        nodes: Vec<u32>,
    },
    /// The policy that was read back differs from the requested one.
    #[error(
        "set {mode:?} on NUMA nodes {nodes:?}, and found mode {found} on nodes {found_nodes:?}"
    )]
    Differs {
        /// Mode that the caller requested.
        mode: Mode,
        /// Nodes that the caller requested.
        nodes: Vec<u32>,
        /// The number of the mode that was found.
        found: i32,
        /// The nodes that were found.
        found_nodes: Vec<u32>,
    },
    /// A system call failed.
    #[error("cannot set or read the memory policy: {0}")]
    System(#[source] io::Error),
}

/// A policy of the calling thread; dropping this restores the previous one.
///
/// It is bound to its thread, as only that can restore it.
#[derive(Debug)]
pub struct MemoryInterleave {
    before: (libc::c_int, Vec<NumaNode>),
    _of_this_thread: PhantomData<*const ()>,
}

impl MemoryInterleave {
    /// Sets the policy, and reads it back: the kernel leaves out nodes that it does not have.
    ///
    /// # Errors
    ///
    /// See [`InterleaveError`]; the previous policy is in force then.
    pub fn take(mode: Mode, nodes: &[NumaNode]) -> Result<Self, InterleaveError> {
        if nodes.is_empty() {
            return Err(InterleaveError::NoNodes);
        }
        let numbers = || nodes.iter().map(|node| node.0).collect::<Vec<_>>();
        let before = policy::of_thread().map_err(refused)?;
        policy::set_of_thread(number_of(mode), nodes).map_err(|error| match error {
            error if error.raw_os_error() == Some(libc::EINVAL) => {
                InterleaveError::Unknown { mode, nodes: numbers() }
            }
            error => refused(error),
        })?;
        let taken = Self { before, _of_this_thread: PhantomData };
        let (found, found_nodes) = policy::of_thread().map_err(InterleaveError::System)?;
        let mut expected = nodes.to_vec();
        expected.sort_unstable();
        expected.dedup();
        let found = found & policy::MODE_BITS;
        if found == number_of(mode) && found_nodes == expected {
            return Ok(taken);
        }
        let found_nodes = found_nodes.iter().map(|node| node.0).collect();
        Err(InterleaveError::Differs { mode, nodes: numbers(), found, found_nodes })
    }

    /// Keeps the policy in force for good, for a thread that becomes another program.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for MemoryInterleave {
    fn drop(&mut self) {
        // It was set before, so it may be set; otherwise this thread only allocates elsewhere.
        let _ = policy::set_of_thread(self.before.0, &self.before.1);
    }
}

fn refused(error: io::Error) -> InterleaveError {
    if policy::is_denied(&error) {
        InterleaveError::Denied(error)
    } else {
        InterleaveError::System(error)
    }
}

fn number_of(mode: Mode) -> libc::c_int {
    match mode {
        Mode::PreferredMany => MPOL_PREFERRED_MANY,
        Mode::WeightedInterleave => MPOL_WEIGHTED_INTERLEAVE,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tierfeed_test_needs::{Need, skip};

    use super::*;

    const NODE: NumaNode = NumaNode(0);

    /// The policies of all mappings of a child, as the kernel shows them.
    fn policies_of_a_child() -> String {
        let output = Command::new("cat").arg("/proc/self/numa_maps").output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn a_child_inherits_what_its_starter_took() {
        let preferred = "prefer (many):0";
        assert!(!policies_of_a_child().contains(preferred));
        let taken = match MemoryInterleave::take(Mode::PreferredMany, &[NODE]) {
            Err(InterleaveError::Denied(error)) => {
                skip(Need::MemoryPolicies, error);
                return;
            }
            taken => taken.unwrap(),
        };
        assert!(policies_of_a_child().contains(preferred), "{}", policies_of_a_child());
        drop(taken);
        assert!(!policies_of_a_child().contains(preferred), "the starter has its own again");
    }

    #[test]
    fn what_a_thread_had_before_is_back() {
        let outer = match MemoryInterleave::take(Mode::PreferredMany, &[NODE]) {
            Ok(outer) => outer,
            Err(error) => return skip(Need::MemoryPolicies, error),
        };
        drop(MemoryInterleave::take(Mode::PreferredMany, &[NODE]).unwrap());
        assert_eq!(policy::of_thread().unwrap(), (MPOL_PREFERRED_MANY, vec![NODE]));
        drop(outer);
        assert_eq!(policy::of_thread().unwrap(), (libc::MPOL_DEFAULT, Vec::new()));
    }

    #[test]
    fn a_node_that_is_not_there_is_no_place() {
        for nodes in [&[NumaNode(900)][..], &[NODE, NumaNode(900)], &[NumaNode(5000)]] {
            let error = MemoryInterleave::take(Mode::PreferredMany, nodes).unwrap_err();
            assert!(!matches!(error, InterleaveError::NoNodes), "{error}");
            assert_eq!(policy::of_thread().unwrap_or_default(), (libc::MPOL_DEFAULT, Vec::new()));
        }
        assert!(matches!(
            MemoryInterleave::take(Mode::PreferredMany, &[]),
            Err(InterleaveError::NoNodes)
        ));
    }
}
