//! Offers a process to the kernel as the first to be killed when memory runs out.
//!
//! The score is inherited by children and survives `exec`, so a command that is started beside a hog
//! must be started with the usual score. A process may always raise its score, and lower it again to
//! what it was when it last had the right to lower it.

use std::{fs, io};

const PATH: &str = "/proc/self/oom_score_adj";

/// Killed before all other processes.
const FIRST: &str = "1000";

#[derive(Debug)]
pub struct OomScore {
    usual: String,
}

impl OomScore {
    /// Raises the score of this process to the maximum.
    ///
    /// # Errors
    ///
    /// There is no `/proc`, or it is read-only.
    pub fn raise() -> io::Result<Self> {
        let usual = fs::read_to_string(PATH)?;
        fs::write(PATH, FIRST)?;
        Ok(Self { usual: usual.trim().to_owned() })
    }

    /// Does `work`, such as starting a command, with the score that this process had before.
    ///
    /// # Errors
    ///
    /// The score cannot be lowered again; `work` was not done.
    pub fn with_usual<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        fs::write(PATH, &self.usual)?;
        let outcome = work();
        fs::write(PATH, FIRST)?;
        Ok(outcome)
    }
}

/// Raises the score of this process to `score` at least.
///
/// # Errors
///
/// There is no `/proc`, or it is read-only.
pub fn raise_to(score: i32) -> io::Result<()> {
    let usual = fs::read_to_string(PATH)?.trim().parse().unwrap_or(i32::MIN);
    if usual < score { fs::write(PATH, score.to_string()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score() -> String {
        fs::read_to_string(PATH).unwrap().trim().to_owned()
    }

    #[test]
    fn work_is_done_with_the_usual_score() {
        let usual = score();
        let raised = OomScore::raise().unwrap();
        assert_eq!(score(), "1000");
        assert_eq!(raised.with_usual(score).unwrap(), usual);
        assert_eq!(score(), "1000");
        raised.with_usual(|| ()).unwrap();
        fs::write(PATH, &usual).unwrap();
    }
}
