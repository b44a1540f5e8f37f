//! The text of memory attributes, and where it belongs in the XML of a topology.

use std::fmt::Write;

use crate::{
    classify::peak,
    figures::{
        Pair, Traffic,
        estimate::{Estimate, to_f64},
        whole,
    },
};

/// What a figure says of a target, seen from an initiator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute {
    /// As hwloc names it.
    pub(super) name: &'static str,
    /// Whether a higher or a lower value is better, and that it has an initiator.
    flags: u32,
    figure: fn(&Pair) -> Option<u64>,
}

const HIGHER: u32 = 1 | 4;
const LOWER: u32 = 2 | 4;

/// The attributes of hwloc that are measured. There is no latency of writes, which nothing waits for.
///
/// # Source
///
/// hwloc 2.8, `hwloc/memattrs.h`: bandwidths in MiB/s, latencies in nanoseconds.
pub(super) const ATTRIBUTES: [Attribute; 5] = [
    Attribute { name: "Bandwidth", flags: HIGHER, figure: bandwidth },
    Attribute { name: "Latency", flags: LOWER, figure: latency },
    Attribute { name: "ReadBandwidth", flags: HIGHER, figure: |it| rate(it, Traffic::Read) },
    Attribute { name: "WriteBandwidth", flags: HIGHER, figure: |it| rate(it, Traffic::Write) },
    Attribute { name: "ReadLatency", flags: LOWER, figure: latency },
];

/// A pair with what names its nodes in the XML.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) pair: &'a Pair,
    /// The CPUs of the initiator.
    pub(super) cpus: &'a [usize],
    /// The number by which the XML knows the target.
    pub(super) target: u64,
}

/// `xml` with the figures of `pairs`, instead of what it says of the same attributes; `None` if there is
/// no figure to be put into it.
pub(super) fn with_figures(xml: &str, pairs: &[Named<'_>]) -> Option<String> {
    let blocks: Vec<(Attribute, String)> =
        ATTRIBUTES.into_iter().filter_map(|it| Some((it, block(it, pairs)?))).collect();
    if blocks.is_empty() {
        return None;
    }
    let mut xml = xml.to_owned();
    for (attribute, _) in &blocks {
        remove(&mut xml, attribute.name);
    }
    let end = xml.find("  <cpukind");
    let end = end.or_else(|| xml.rfind("</topology>"))?;
    let blocks: String = blocks.into_iter().map(|(_, block)| block).collect();
    xml.insert_str(end, &blocks);
    Some(xml)
}

fn block(attribute: Attribute, pairs: &[Named<'_>]) -> Option<String> {
    let mut values = String::new();
    for Named { pair, cpus, target } in pairs {
        if let Some(value) = (attribute.figure)(pair) {
            writeln!(
                values,
                "    <memattr_value target_obj_type=\"NUMANode\" target_obj_gp_index=\"{target}\" \
                 value=\"{value}\" initiator_cpuset=\"{}\"/>",
                cpuset(cpus)
            )
            .expect("a String takes everything");
        }
    }
    let Attribute { name, flags, .. } = attribute;
    let opened = format!("  <memattr name=\"{name}\" flags=\"{flags}\">\n");
    (!values.is_empty()).then(|| opened + &values + "  </memattr>\n")
}

/// Takes what the firmware states of an attribute out of the text.
fn remove(xml: &mut String, name: &str) {
    let start = format!("  <memattr name=\"{name}\"");
    let end = "</memattr>\n";
    while let Some(from) = xml.find(&start) {
        let Some(length) = xml[from..].find(end) else { return };
        xml.replace_range(from..from + length + end.len(), "");
    }
}

/// Groups of 32 CPUs in hexadecimal digits, the highest first, as hwloc writes them.
fn cpuset(cpus: &[usize]) -> String {
    let count = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut groups = vec![0_u32; count];
    for cpu in cpus {
        groups[cpu / 32] |= 1 << (cpu % 32);
    }
    let groups: Vec<String> = groups.iter().rev().map(|group| format!("0x{group:08x}")).collect();
    groups.join(",")
}

fn latency(pair: &Pair) -> Option<u64> {
    pair.idle_latency_ns.map(whole)
}

fn rate(pair: &Pair, traffic: Traffic) -> Option<u64> {
    peak(pair, traffic, None).map(mebibytes)
}

/// hwloc's definition: the mean of reads and writes, only where both are known.
fn bandwidth(pair: &Pair) -> Option<u64> {
    Some(u64::midpoint(rate(pair, Traffic::Read)?, rate(pair, Traffic::Write)?))
}

fn mebibytes(rate: Estimate) -> u64 {
    let per_mebibyte = to_f64(1 << 20);
    whole(Estimate::stated(rate.median / per_mebibyte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests_support::full;

    const XML: &str = "<topology version=\"2.0\">\n  <object/>\n  \
        <memattr name=\"Latency\" flags=\"6\">\n    <memattr_value value=\"7\"/>\n  </memattr>\n  \
        <memattr name=\"Other\" flags=\"6\">\n    <memattr_value value=\"9\"/>\n  </memattr>\n  \
        <cpukind/>\n  <cpukind/>\n</topology>\n";

    #[test]
    fn figures_replace_what_the_firmware_states_and_nothing_else() {
        let report = full();
        let named = Named { pair: &report.pairs[2], cpus: &[0, 33], target: 14 };
        let xml = with_figures(XML, &[named]).unwrap();
        let document = roxmltree::Document::parse(&xml).unwrap();
        let of = |name: &str| -> Vec<(String, String)> {
            let values = document.descendants().filter(|it| it.has_tag_name("memattr_value"));
            let values = values.filter(|it| it.parent().unwrap().attribute("name") == Some(name));
            let attribute = |it: &roxmltree::Node<'_, '_>, key| {
                it.attribute(key).unwrap_or_default().to_owned()
            };
            values.map(|it| (attribute(&it, "value"), attribute(&it, "initiator_cpuset"))).collect()
        };
        let cpus = "0x00000002,0x00000001".to_owned();
        assert_eq!(of("Latency"), [("279".to_owned(), cpus.clone())]);
        // 17.6 GB/s and 60 % of it for writes.
        assert_eq!(of("ReadBandwidth"), [("16785".to_owned(), cpus.clone())]);
        assert_eq!(of("Bandwidth"), [("13428".to_owned(), cpus)]);
        assert_eq!(of("Other"), [("9".to_owned(), String::new())]);
        assert!(xml.find("Bandwidth").unwrap() < xml.find("<cpukind").unwrap());
    }

    #[test]
    fn a_report_without_figures_changes_nothing() {
        let pair = Pair::default();
        assert_eq!(with_figures(XML, &[Named { pair: &pair, cpus: &[0], target: 1 }]), None);
    }

    #[test]
    fn sets_of_cpus_are_written_as_hwloc_reads_them() {
        assert_eq!(cpuset(&[0, 1]), "0x00000003");
        assert_eq!(cpuset(&[95]), "0x80000000,0x00000000,0x00000000");
    }
}
