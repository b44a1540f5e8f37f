//! The files that an earlier probe or calibration left for this user.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use tierfeed_resource_gatherer::{
    Report,
    calibrate::Calibration,
    report::{self, StoreError},
};

/// The most characters of a host's name in the name of a file.
const HOST_LEN_MAX: usize = 64;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq)]
pub struct SavedReport {
    pub report: Report,
    pub file: PathBuf,
    /// `None` where the file system does not say.
    pub written: Option<SystemTime>,
}

impl fmt::Display for SavedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe report {} of {}", self.file.display(), Day(self.written))
    }
}

struct Day(Option<SystemTime>);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
        match since {
            Some(since) => {
                let (year, month, day) = date(since.as_secs() / SECONDS_PER_DAY);
                write!(f, "{year}-{month:02}-{day:02}")
            }
            None => f.write_str("an unknown date"),
        }
    }
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
///
/// # Source
///
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// The report at `path`; `None` if there is none, or if the file is no report, which is logged.
#[must_use]
pub fn report_at(path: &Path) -> Option<SavedReport> {
    match report::read(path) {
        Ok(report) => {
            let written = fs::metadata(path).and_then(|file| file.modified()).ok();
            Some(SavedReport { report, file: path.to_owned(), written })
        }
        Err(StoreError::Unreadable(_, source)) if source.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(%error, "goes on as if nothing was measured");
            None
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SavedCalibration {
    pub(super) calibration: Calibration,
    file: PathBuf,
    written: Option<SystemTime>,
}

impl SavedCalibration {
    pub(super) fn read(report: &Path, host: &str) -> Option<Self> {
        let file = calibration_file(report, host);
        let written = fs::metadata(&file).and_then(|file| file.modified()).ok();
        Some(Self { calibration: Calibration::read(&file)?, file, written })
    }
}

impl fmt::Display for SavedCalibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calibration {} of {}", self.file.display(), Day(self.written))
    }
}

/// The calibration file of `host`, beside the probe report: hosts may share a home directory.
#[must_use]
pub fn calibration_file(report: &Path, host: &str) -> PathBuf {
    let is_plain = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.' | '_');
    let host: String = host.chars().filter(is_plain).take(HOST_LEN_MAX).collect();
    report.with_file_name(format!("calibration-{host}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_since_1970_are_dates_of_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(20_453), (2025, 12, 31));
    }
}
