//! Reads the network interfaces: the cold store is reached through them, at their speed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sysroot::{Sysroot, entries, link_name, numbered_entries, optional, optional_number};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Its name, for instance `eth0`.
    pub name: String,
    /// Its state as the kernel names it: `up`, `down`, `unknown`.
    pub state: Option<String>,
    /// The speed of the link, `None` if it is down or has no speed of its own.
    pub link_bits_per_s: Option<u64>,
    /// The longest packet.
    pub packet_bytes_max: Option<u64>,
    /// The node that its device hangs at, where the firmware tells.
    pub numa_node: Option<u32>,
    /// The driver of its device, `None` for a virtual interface.
    pub driver: Option<String>,
}

/// A port of an InfiniBand or RoCE device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfinibandPort {
    /// The device, for instance `mlx5_0`.
    pub device: String,
    /// The number of the port.
    pub port: u32,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<String>,
    /// Its state as the kernel names it, for instance `ACTIVE`.
    pub state: Option<String>,
    /// The rate of the link.
    pub link_bits_per_s: Option<u64>,
    /// The node that its device hangs at, where the firmware tells.
    pub numa_node: Option<u32>,
}

/// All interfaces by name.
pub(crate) fn interfaces(sysroot: Sysroot<'_>) -> Vec<NetworkInterface> {
    let root = sysroot.join("sys/class/net");
    let is_interface = |name: &String| root.join(name).is_dir();
    let names = entries(&root).into_iter().filter(is_interface);
    names.map(|name| interface(sysroot, &root.join(&name), name)).collect()
}

/// All ports by device and number.
pub(crate) fn infiniband(sysroot: Sysroot<'_>) -> Vec<InfinibandPort> {
    let root = sysroot.join("sys/class/infiniband");
    let devices = entries(&root).into_iter();
    let ports = |device: String| {
        let ports = root.join(&device).join("ports");
        let numbers = numbered_entries(&ports, "").into_iter();
        let numa_node = sysroot.nearest_node(&root.join(&device));
        numbers
            .map(|number| port(&ports, device.clone(), number, numa_node))
            .collect::<Vec<InfinibandPort>>()
    };
    devices.flat_map(ports).collect()
}

/// The kernel gives Mbit/s, and -1 or an error for a link that is down.
fn interface(sysroot: Sysroot<'_>, device: &Path, name: String) -> NetworkInterface {
    let megabits = optional_number(&device.join("speed")).filter(|megabits| *megabits > 0);
    NetworkInterface {
        name,
        state: optional(&device.join("operstate")),
        link_bits_per_s: megabits.and_then(|megabits| megabits.checked_mul(1_000_000)),
        packet_bytes_max: optional_number(&device.join("mtu")),
        numa_node: sysroot.nearest_node(device),
        driver: link_name(&device.join("device/driver")),
    }
}

fn port(ports: &Path, device: String, port: u32, numa_node: Option<u32>) -> InfinibandPort {
    let directory = ports.join(port.to_string());
    let state = optional(&directory.join("state"));
    InfinibandPort {
        device,
        port,
        link_layer: optional(&directory.join("link_layer")),
        // `4: ACTIVE`
        state: state.map(|text| text.rsplit(": ").next().unwrap_or_default().to_owned()),
        link_bits_per_s: optional(&directory.join("rate")).and_then(|text| rate(&text)),
        numa_node,
    }
}

/// `2.5 Gb/sec (1X SDR)`; the kernel writes at most one digit behind the point.
fn rate(text: &str) -> Option<u64> {
    let (gigabits, _) = text.split_once(" Gb/sec")?;
    let (whole, tenth) = gigabits.split_once('.').unwrap_or((gigabits, "0"));
    let tenth = tenth.parse().ok().filter(|tenth: &u64| *tenth < 10)?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(10)?.checked_add(tenth)?.checked_mul(100_000_000)
}
