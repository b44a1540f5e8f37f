//! The prices of the parts of a run, from a checked file.

use std::{path::Path, str::FromStr};

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{
    FILE_BYTES_MAX, Hourly, Money, PriceError, PricesError, Reason, Requested, Stored,
    price::MONTH, prices_file::PricesFile,
};
use crate::{
    job::location,
    job_file::{Text, Whole, read_bounded},
};

/// The most objects that one listing of a Google or Amazon bucket returns.
const LIST_PAGE: u32 = 1_000;
const LIST_PAGE_MAX: u32 = 1_000_000;

/// The prices of one provider, region and kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// The price of a node with its accelerators; DELI's `c_c`.
    pub vm: Hourly,
    /// The price of disk space of a node; `c_d`.
    pub disk: Stored,
    /// The price of bytes in the bucket; `c_b`.
    pub store: Stored,
    /// The price of requests that list the bucket; `c_A`.
    pub class_a: Requested,
    /// The price of requests that read an object; `c_B`.
    pub class_b: Requested,
    /// Objects that one listing returns; `p`. The default is 1,000.
    pub list_page: u32,
    /// Bytes on the disk of a node besides data; `s_r`. The default is zero.
    pub system_disk: Bytes,
    /// The time for which stored bytes are charged. The default is started months.
    pub storage_charged: StorageCharged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageCharged {
    /// Every month that the run begins, as in DELI's equations for runs of up to a month.
    StartedMonths,
    /// The duration of the run.
    Time,
}

impl StorageCharged {
    const ALL: [Self; 2] = [Self::StartedMonths, Self::Time];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StartedMonths => "started-months",
            Self::Time => "time",
        }
    }

    /// The charge for bytes that cost `monthly` and are stored for `time`.
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
    /// If the file cannot be read, is not YAML, or is not a file of prices; the error names file, line, key
    /// and value.
    pub fn load(path: &Path) -> Result<Self, PricesError> {
        let unreadable = |source| PricesError::Unreadable { file: path.to_owned(), source };
        let text = read_bounded(path, FILE_BYTES_MAX).map_err(unreadable)?;
        let text = text.ok_or_else(|| PricesError::TooLarge { file: path.to_owned() })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file of prices. Errors name `file_name`.
    ///
    /// # Errors
    ///
    /// If the text is not YAML or is not a file of prices.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, PricesError> {
        Check { text, file: file_name }.prices()
    }
}

/// The text of the file, by which checks find the line of a key.
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
