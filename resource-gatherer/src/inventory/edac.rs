//! Reads the memory modules from the drivers that watch for memory errors (EDAC).

use std::path::Path;

use super::memory_module::{MemoryHardware, Module, Source};
use crate::sysroot::{Sysroot, entries, numbered_entries, optional, optional_number};

/// The modules that the drivers tell of, or `None` if they tell of none.
pub(crate) fn read(sysroot: Sysroot<'_>) -> Option<MemoryHardware> {
    let root = sysroot.join("sys/devices/system/edac/mc");
    let controllers = numbered_entries(&root, "mc").into_iter();
    let modules: Vec<Module> = controllers
        .flat_map(|number| {
            let controller = root.join(format!("mc{number}"));
            let is_module = |name: &String| name.starts_with("dimm") || name.starts_with("rank");
            let names = entries(&controller).into_iter().filter(is_module);
            names.filter_map(|name| module(&controller.join(name), number)).collect::<Vec<Module>>()
        })
        .collect();
    (!modules.is_empty()).then_some(MemoryHardware {
        source: Source::Edac,
        slots: None,
        capacity_bytes_max: None,
        error_correction: None,
        modules,
    })
}

fn module(directory: &Path, controller: u32) -> Option<Module> {
    let mebibytes = optional_number(&directory.join("size")).filter(|size| *size > 0)?;
    let location = optional(&directory.join("dimm_location"));
    Some(Module {
        size_bytes: mebibytes.checked_mul(1 << 20),
        kind: optional(&directory.join("dimm_mem_type")),
        slot: optional(&directory.join("dimm_label")).filter(|label| !label.is_empty()),
        bank: location.map(|location| format!("mc{controller} {location}")),
        ..Module::default()
    })
}
