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
    let far = inventory
        .nodes
        .iter()
        .filter(|node| node.memory_total_bytes > 0 && node.tier_kind() == Some(Kind::CxlMemory));
    let words: Vec<_> = far.map(node_and_size).collect();
    if words.is_empty() {
        return Finding::ok(SUBJECT, "none; a job may play it (tiers.cxl-memory.emulate)");
    }
    Finding::ok(SUBJECT, words.join(", "))
}

fn node_and_size(node: &Node) -> String {
    format!("node {} ({})", node.id, Bytes(node.memory_total_bytes))
}

/// Memory that belongs to the models in training.
fn of_gpus(inventory: &Inventory) -> Option<Finding> {
    let gpus = inventory.nodes.iter().filter(|node| node.is_gpu() && node.memory_total_bytes > 0);
    let words: Vec<_> = gpus.map(node_and_size).collect();
    let found = format!("{}, never a tier", words.join(", "));
    (!words.is_empty()).then(|| Finding::ok("memory of GPUs", found))
}

fn unknown(node: &Node) -> Option<Finding> {
    if node.tier_kind().is_some() {
        return None;
    }
    let found = format!(
        "{} has no CPUs, and neither DAX, CXL nor HMAT says what it is",
        node_and_size(node)
    );
    let finding =
        Finding::degraded("memory of an unknown kind", found, "no job uses it without its number");
    let fix = format!("tiers: {{ cxl-memory: {{ numa_nodes: [{}] }} }}", node.id);
    Some(finding.fix(FixPlace::Job, fix))
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
    let finding = Finding::missing(
        "CXL devices without a region",
        format!("{} with {}", names.join(", "), Bytes(size)),
        "this memory is neither a node nor a tier",
    );
    Some(
        finding
            .fix(FixPlace::Host, format!("cxl create-region -m -t ram -d {window} {}", first.name)),
    )
}

/// A device that programs may map, but that is not ordinary memory.
fn unbound(inventory: &Inventory, device: &DaxDevice) -> Option<Finding> {
    const SUBJECT: &str = "DAX devices";
    let name = &device.name;
    let size = Bytes(device.size_bytes.unwrap_or(0));
    if !device.is_system_memory() {
        let driver = device.driver.as_deref().unwrap_or("no driver");
        let finding = Finding::missing(
            SUBJECT,
            format!("{name} ({size}) is bound to {driver}, not to kmem"),
            "this memory is neither a node nor a tier",
        );
        let fix = format!("daxctl reconfigure-device --mode=system-ram --no-movable {name}");
        return Some(finding.fix(FixPlace::Host, fix));
    }
    let target = device.target_node?;
    let has_memory = |node: &Node| node.id == target && node.memory_total_bytes > 0;
    if inventory.nodes.iter().any(has_memory) {
        return None;
    }
    let finding = Finding::missing(
        SUBJECT,
        format!("{name} ({size}) belongs to kmem, but node {target} has no memory"),
        "its blocks are offline, so this memory is neither a node nor a tier",
    );
    Some(finding.fix(FixPlace::Host, format!("daxctl online-memory --no-movable {name}")))
}

fn movable(inventory: &Inventory, node: &Node) -> Option<Finding> {
    let percent = node.movable_percent.filter(|percent| *percent > 0)?;
    if !node.cpus.is_empty() || node.memory_total_bytes == 0 {
        return None;
    }
    let finding = Finding::degraded(
        "movable memory",
        format!("{percent} % of node {} take movable pages only", node.id),
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
