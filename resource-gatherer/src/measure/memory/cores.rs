//! Chooses the CPUs that a measurement runs on: one hardware thread of each core of a node, of those
//! that this process may use.
//!
//! Two hardware threads share the buffers that keep loads in flight, so a second one on a core would
//! measure the core, not the memory.

use std::io;

use tierfeed_numa_memory::affinity;

use crate::{
    inventory::{node::Node, number_list},
    sysroot::{Sysroot, optional},
};

/// One CPU of each core of `node`, in ascending order.
///
/// # Errors
///
/// None of the CPUs may be used, or the kernel does not say which may.
pub(crate) fn of_node(node: &Node, sysroot: Sysroot<'_>) -> io::Result<Vec<usize>> {
    let allowed = affinity::allowed_cpus()?;
    let is_here = |cpu: &usize| u32::try_from(*cpu).is_ok_and(|cpu| node.cpus.contains(&cpu));
    let here: Vec<usize> = allowed.into_iter().filter(is_here).collect();
    let cores = one_of_each_core(&here, |cpu| siblings(sysroot, cpu));
    if cores.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(cores) }
}

fn siblings(sysroot: Sysroot<'_>, cpu: usize) -> Vec<u32> {
    let topology = sysroot.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    let list = optional(&topology.join("thread_siblings_list"));
    list.and_then(|list| number_list::parse(&list)).unwrap_or_default()
}

/// The first CPU of each set of siblings among `cpus`; a CPU without known siblings is its own core.
fn one_of_each_core(cpus: &[usize], siblings: impl Fn(usize) -> Vec<u32>) -> Vec<usize> {
    let mut taken: Vec<u32> = Vec::new();
    cpus.iter()
        .copied()
        .filter(|cpu| {
            let is_new = !u32::try_from(*cpu).is_ok_and(|cpu| taken.contains(&cpu));
            if is_new {
                taken.extend(siblings(*cpu));
            }
            is_new
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn of_two_threads_of_a_core_one_is_used() {
        let pairs =
            |cpu: usize| vec![u32::try_from(cpu % 4).unwrap(), u32::try_from(cpu % 4 + 4).unwrap()];
        assert_eq!(one_of_each_core(&[0, 1, 2, 3, 4, 5, 6, 7], pairs), [0, 1, 2, 3]);
        assert_eq!(one_of_each_core(&[1, 4, 5, 7], pairs), [1, 4, 7], "0 and 3 are not allowed");
        assert_eq!(one_of_each_core(&[2, 9], |_| Vec::new()), [2, 9]);
    }

    #[test]
    fn siblings_are_read_as_the_kernel_lists_them() {
        let machine = FakeSysroot::bare();
        let list = "sys/devices/system/cpu/cpu1/topology/thread_siblings_list";
        machine.write(list, "1,65\n");
        assert_eq!(siblings(Sysroot(machine.path()), 1), [1, 65]);
        assert!(siblings(Sysroot(machine.path()), 2).is_empty());
    }
}
