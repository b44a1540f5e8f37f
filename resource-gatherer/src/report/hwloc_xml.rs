//! Writes the measured figures where programs look that use hwloc: as memory attributes of its XML.
//!
//! hwloc itself never measures; `HWLOC_XMLFILE=FILE` or `lstopo --input FILE --memattrs` takes these
//! instead of what the firmware states. The topology in the file is the one of this host, as hwloc sees
//! it. hwloc lets no program but itself fill the attributes that it defines, so they are put into the
//! text, in place of those of the same names.

#[cfg(feature = "hwloc")]
mod attributes;
#[cfg(feature = "hwloc")]
mod topology;

#[cfg(feature = "hwloc")]
pub use self::topology::hwloc_xml;

/// Why there is no XML.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HwlocXmlError {
    /// hwloc cannot be asked.
    #[error(
        "this tierfeed was built without hwloc; build it with the feature `hwloc`, which needs \
         libhwloc-dev and libudev-dev"
    )]
    NotBuilt,
    /// hwloc cannot describe this host.
    #[error("hwloc cannot read the topology of this host: {0}")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The report is of another host, whose topology is not here.
    #[error(
        "the report is of host {report:?} and this is {here:?}; hwloc needs the topology, so export \
         where it was measured"
    )]
    OtherHost {
        /// The host of the report.
        report: String,
        /// The name of this host.
        here: String,
    },
    /// No figure of the report is one that hwloc knows.
    #[error("the report has no figure of memory; run `tierfeed tiers probe` first")]
    NoFigures,
}

/// The topology of this host with the figures of `report`.
///
/// # Errors
///
/// Always: this tierfeed was built without hwloc.
#[cfg(not(feature = "hwloc"))]
pub fn hwloc_xml(_report: &super::Report) -> Result<String, HwlocXmlError> {
    Err(HwlocXmlError::NotBuilt)
}
