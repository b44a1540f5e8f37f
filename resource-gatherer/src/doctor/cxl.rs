//! Judges CXL and DAX memory: whether it became nodes, and nodes that can be used.

use tierfeed_core::{tier::Kind, units::Bytes};

use super::{Facts, Finding, FixPlace};
use crate::inventory::{DaxDevice, Inventory, Node};

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let inventory = &facts.inventory;
    let mut findings = vec![nodes(inventory)];
    findings.extend(of_gpus(inventory));
    findings.extend(inventory.memory_nodes().filter_map(unknown));
    findings.extend(without_region(inventory));
    findings.extend(inventory.dax.iter().filter_map(|device| unbound(inventory, device)));
    findings.extend(inventory.nodes.iter().filter_map(|node| movable(inventory, node)));
    findings
}

fn nodes(inventory: &Inventory) -> Finding {
    const SUBJECT: &str = "CXL memory";
    match named(inventory, |node| node.tier_kind() == Some(Kind::CxlMemory)) {
        Some(nodes) => Finding::ok(SUBJECT, nodes),
        None => Finding::ok(SUBJECT, "none; a job may play it (tiers.cxl-memory.emulate)"),
    }
}

fn node_and_size(node: &Node) -> String {
    format!("node {} ({})", node.id, Bytes(node.memory_total_bytes))
}

/// Memory that belongs to the models in training.
fn of_gpus(inventory: &Inventory) -> Option<Finding> {
    let nodes = named(inventory, Node::is_gpu)?;
    Some(Finding::ok("memory of GPUs", format!("{nodes}, never a tier")))
}

/// The nodes with memory that are `such`; `None` if there are none.
fn named(inventory: &Inventory, such: impl Fn(&Node) -> bool) -> Option<String> {
    let nodes = inventory.nodes.iter().filter(|node| node.memory_total_bytes > 0 && such(node));
    let words: Vec<_> = nodes.map(node_and_size).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn unknown(node: &Node) -> Option<Finding> {
    if node.tier_kind().is_some() {
        return None;
    }
    let found = format!(
        "{} has no CPUs, and neither DAX, CXL nor HMAT says what it is",
        node_and_size(node)
    );
    let fix = format!("tiers: {{ cxl-memory: {{ numa_nodes: [{}] }} }}", node.id);
    let finding = Finding::ok("memory of an unknown kind", found);
    Some(finding.degraded("no job uses it without its number").fix(FixPlace::Job, fix))
}

/// Memory devices that no region uses, so they are not yet ordinary memory.
fn without_region(inventory: &Inventory) -> Option<Finding> {
    let cxl = &inventory.cxl;
    let idle = |memory: &&crate::inventory::cxl::CxlMemory| {
        cxl.regions_of(&memory.name).next().is_none() && memory.ram_bytes.is_some_and(|ram| ram > 0)
    };
    let idle: Vec<_> = cxl.memories.iter().filter(idle).collect();
    let first = idle.first()?;
    let names: Vec<_> = idle.iter().map(|memory| memory.name.as_str()).collect();
    let size = idle.iter().filter_map(|memory| memory.ram_bytes).fold(0, u64::saturating_add);
    let window = cxl.windows.iter().find(|window| window.takes_ram);
    let window = window.map_or("decoder0.0", |window| window.name.as_str());
    let found = format!("{} with {}", names.join(", "), Bytes(size));
    let fix = format!("cxl create-region -m -t ram -d {window} {}", first.name);
    let finding = Finding::ok("CXL devices without a region", found);
    Some(finding.missing("this memory is neither a node nor a tier").fix(FixPlace::Host, fix))
}

/// A device that programs may map, but that is not ordinary memory.
fn unbound(inventory: &Inventory, device: &DaxDevice) -> Option<Finding> {
    let name = &device.name;
    let finding = |found: &str| {
        let size = Bytes(device.size_bytes.unwrap_or(0));
        Finding::ok("DAX devices", format!("{name} ({size}) {found}"))
    };
    if !device.is_system_memory() {
        let driver = device.driver.as_deref().unwrap_or("no driver");
        let fix = format!("daxctl reconfigure-device --mode=system-ram --no-movable {name}");
        let finding = finding(&format!("is bound to {driver}, not to kmem"))
            .missing("this memory is neither a node nor a tier");
        return Some(finding.fix(FixPlace::Host, fix));
    }
    let target = device.target_node?;
    let has_memory = |node: &Node| node.id == target && node.memory_total_bytes > 0;
    if inventory.nodes.iter().any(has_memory) {
        return None;
    }
    let finding = finding(&format!("belongs to kmem, but node {target} has no memory"))
        .missing("its blocks are offline, so this memory is neither a node nor a tier");
    Some(finding.fix(FixPlace::Host, format!("daxctl online-memory --no-movable {name}")))
}

fn movable(inventory: &Inventory, node: &Node) -> Option<Finding> {
    let percent = node.movable_percent.filter(|percent| *percent > 0)?;
    if !node.cpus.is_empty() || node.memory_total_bytes == 0 {
        return None;
    }
    let found = format!("{percent} % of node {} take movable pages only", node.id);
    let finding = Finding::ok("movable memory", found).degraded(
        "memory there cannot be registered with a GPU or network card, and the kernel uses it last",
    );
    let device = inventory.dax.iter().find(|device| device.target_node == Some(node.id));
    let fix = match device {
        Some(DaxDevice { name, .. }) => format!(
            "daxctl offline-memory {name} && \
             daxctl reconfigure-device --mode=system-ram --no-movable --force {name}"
        ),
        None => "echo online_kernel > /sys/devices/system/memory/auto_online_blocks".to_owned(),
    };
    Some(finding.fix(FixPlace::Host, fix).fix(FixPlace::Boot, "memhp_default_state=online_kernel"))
}
