//! What the parts of a run cost: a file of prices, checked.

use std::{fs::File, io::Read as _, path::Path, str::FromStr};

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{
    FILE_BYTES_MAX, Hourly, Money, PriceError, PricesError, Reason, Requested, Stored,
    price::MONTH, prices_file::PricesFile,
};
use crate::{
    job::location,
    job_file::{Text, Whole},
};

/// What one listing of Google's and Amazon's buckets returns at most.
const LIST_PAGE: u32 = 1_000;
const LIST_PAGE_MAX: u32 = 1_000_000;

/// The prices of one provider, region and kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// A node with its accelerators; DELI's `c_c`.
    pub vm: Hourly,
    /// Disks of nodes; `c_d`.
    pub disk: Stored,
    /// The bucket; `c_b`.
    pub store: Stored,
    /// Requests that list the bucket; `c_A`.
    pub class_a: Requested,
    /// Requests that read an object; `c_B`.
    pub class_b: Requested,
    /// Objects that one listing returns; `p`. 1,000 unless given.
    pub list_page: u32,
    /// What a node's disk holds besides data; `s_r`. Nothing unless given.
    pub system_disk: Bytes,
    /// For how long stored bytes are paid; for started months unless given.
    pub storage_charged: StorageCharged,
}

/// For how long stored bytes are paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageCharged {
    /// For every month that the run begins: DELI's equations for runs of up to a month.
    StartedMonths,
    /// For as long as the run takes.
    Time,
}

impl StorageCharged {
    const ALL: [Self; 2] = [Self::StartedMonths, Self::Time];

    /// The name in files of prices.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StartedMonths => "started-months",
            Self::Time => "time",
        }
    }

    /// For what costs `monthly` and is there for `time`.
    #[must_use]
    pub fn charge(self, monthly: Money, time: Nanoseconds) -> Money {
        match self {
            Self::StartedMonths => monthly.times(time.0.div_ceil(MONTH.0).max(1)),
            Self::Time => monthly.share(time.0, MONTH.0),
        }
    }
}

impl Prices {
    /// Reads a file of prices.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no YAML, or holds no prices; they name file, line, key and value.
    pub fn load(path: &Path) -> Result<Self, PricesError> {
        let unreadable = |source| PricesError::Unreadable { file: path.to_owned(), source };
        let mut text = String::new();
        // Bounded by what is read, not by the length: a pipe or a device has none.
        let mut file = File::open(path).map_err(unreadable)?.take(FILE_BYTES_MAX + 1);
        file.read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(PricesError::TooLarge { file: path.to_owned() });
        }
        Self::parse(&text, path)
    }

    /// Reads the text of a file of prices. `file_name` stands in errors.
    ///
    /// # Errors
    ///
    /// If the text is no YAML or holds no prices.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, PricesError> {
        Check { text, file: file_name }.prices()
    }
}

/// What every check needs to find its place in the file.
struct Check<'a> {
    text: &'a str,
    file: &'a Path,
}

impl Check<'_> {
    fn prices(&self) -> Result<Prices, PricesError> {
        let typed = self.read()?;
        Ok(Prices {
            vm: self.price("vm", &typed.vm, "0.95 $/h")?,
            disk: self.price("disk", &typed.disk, "0.04 $/GB/month")?,
            store: self.price("store", &typed.store, "0.02 $/GB/month")?,
            class_a: self.price("class_a", &typed.class_a, "0.05 $/10k")?,
            class_b: self.price("class_b", &typed.class_b, "0.004 $/10k")?,
            list_page: self.list_page(typed.list_page)?,
            system_disk: self.system_disk(typed.system_disk.as_ref())?,
            storage_charged: self.storage_charged(typed.storage_charged.as_ref())?,
        })
    }

    fn read(&self) -> Result<PricesFile, PricesError> {
        location::refuse_repeated_keys(self.text)
            .map_err(|said| self.malformed(".".to_owned(), said))?;
        let yaml = serde_yaml::Deserializer::from_str(self.text);
        serde_path_to_error::deserialize(yaml)
            .map_err(|error| self.malformed(error.path().to_string(), error.into_inner()))
    }

    fn price<P: FromStr<Err = PriceError>>(
        &self,
        key: &'static str,
        typed: &Text,
        example: &'static str,
    ) -> Result<P, PricesError> {
        let not_a_price = |problem| Reason::NotAPrice { problem, example };
        typed.0.parse().map_err(|problem| self.invalid(key, &typed.0, not_a_price(problem)))
    }

    fn list_page(&self, typed: Option<Whole>) -> Result<u32, PricesError> {
        let Some(typed) = typed else { return Ok(LIST_PAGE) };
        let reason = Reason::OutOfRange { min: 1, max: u64::from(LIST_PAGE_MAX) };
        let page = u32::try_from(typed.0).ok().filter(|page| (1..=LIST_PAGE_MAX).contains(page));
        page.ok_or_else(|| self.invalid("list_page", &typed.0.to_string(), reason))
    }

    fn system_disk(&self, typed: Option<&Text>) -> Result<Bytes, PricesError> {
        let Some(typed) = typed else { return Ok(Bytes(0)) };
        let not_a_size = |problem| Reason::NotASize { problem, example: "16 GB" };
        let size = typed.0.parse();
        size.map_err(|problem| self.invalid("system_disk", &typed.0, not_a_size(problem)))
    }

    fn storage_charged(&self, typed: Option<&Text>) -> Result<StorageCharged, PricesError> {
        let Some(typed) = typed else { return Ok(StorageCharged::StartedMonths) };
        let known = StorageCharged::ALL.into_iter().find(|it| it.name() == typed.0);
        let reason = Reason::NotOneOf { allowed: "started-months, time" };
        known.ok_or_else(|| self.invalid("storage_charged", &typed.0, reason))
    }

    fn invalid(&self, key: &'static str, value: &str, reason: Reason) -> PricesError {
        PricesError::Invalid {
            file: self.file.to_owned(),
            line: location::line_of(self.text, &[key]),
            key,
            value: value.to_owned(),
            reason,
        }
    }

    fn malformed(&self, key: String, said: serde_yaml::Error) -> PricesError {
        let line = said.location().map_or(1, |location| location.line());
        PricesError::Malformed { file: self.file.to_owned(), line, key, said }
    }
}
