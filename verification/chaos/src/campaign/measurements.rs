//! What a campaign measures while trainers run: the resources of processes, the sources of the bytes of batches,
//! the cost of one fault, and the waits beside a hostile client.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tierfeed_harness::clock::now;

use super::Campaign;
use crate::{
    checks::Measurement,
    fault::Fault,
    footprint, hostile_client,
    interference::{self, longest_wait, used},
    metrics::{self, TierUsage, Traffic},
    outcome::Outcome,
    pace::{Cost, Pace},
    record::Tail,
    role::Role,
    silent_connections::SilentConnections,
};

/// The time between two measurements in the phase without faults.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The rate before a fault is measured over this time.
const RATE_OVER: Duration = Duration::from_secs(2);

/// After this time without faults all nodes read from each other again: a node that failed again and again is
/// not asked for that long.
const PLACES_FOUND_WITHIN: Duration = Duration::from_secs(30);

/// The largest increase, over the share before all faults, of the share of the read bytes that comes from the
/// cold store, in percent of all: a busy machine makes reads from other nodes late.
const COLD_GROWTH_MAX_PERCENT: f64 = 20.0;

/// After a fault alone, the training is at the full rate within this time.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// Time between two looks at the rate after a fault.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Campaign<'_> {
    pub(super) fn measure(&mut self, role: Role) -> anyhow::Result<()> {
        let before = self.tier_usage(role)?;
        let is_gone = || format!("{role} runs while no fault is active");
        let held = self.supervisor.pid(role).and_then(footprint::of).with_context(is_gone)?;
        // Chunks are taken and given back meanwhile: the larger figures bound what the kernel shows.
        let tier_usage = before.max(self.tier_usage(role)?);
        let (at_s, incarnation) =
            (self.begin.elapsed().as_secs_f64(), self.supervisor.starts(role));
        self.measurements.push(Measurement { role, at_s, incarnation, held, tier_usage });
        Ok(())
    }

    fn tier_usage(&self, role: Role) -> anyhow::Result<Option<TierUsage>> {
        let Role::Agent(_) = role else { return Ok(None) };
        let metrics = metrics::of_agent(&self.testbed.folder.run_dir(role))?;
        TierUsage::parse(&metrics).context("the metrics have no bytes of tiers").map(Some)
    }

    pub(super) fn traffic(&self) -> anyhow::Result<Traffic> {
        let agents = self.testbed.world.agents();
        let metrics = agents.map(|it| metrics::of_agent(&self.testbed.folder.run_dir(it)));
        Ok(Traffic::parse(&metrics.collect::<anyhow::Result<String>>()?))
    }

    /// Lets the ranks train without faults, and measures the resources of all processes.
    pub(super) fn measure_quiet(&mut self, time: Duration) -> anyhow::Result<()> {
        let begin = now();
        let mut before = self.traffic()?;
        while begin.elapsed() < time {
            self.pass(MEASURE_EVERY)?;
            if begin.elapsed() < time / 2 {
                before = self.traffic()?;
            }
            self.testbed.world.roles().try_for_each(|role| self.measure(role))?;
        }
        self.outcome.quiet = self.traffic()?.since(before);
        if self.testbed.world.nodes > 1 && time / 2 >= PLACES_FOUND_WITHIN {
            let before = self.outcome.undisturbed.cold_percent();
            let after = self.outcome.quiet.cold_percent();
            if after > before + COLD_GROWTH_MAX_PERCENT {
                self.outcome.violations.push(format!(
                    "nodes read {after:.0} % cold {:?} after the last fault, and {before:.0} % before \
                     the first: not every node found its place",
                    time / 2
                ));
            }
        }
        Ok(())
    }

    /// Injects a fault alone, and measures the time until the training is at the full rate again.
    pub(super) fn measure_cost(&mut self, fault: Fault) -> anyhow::Result<()> {
        let mut pace = Pace::watch(self.testbed);
        self.pass(RATE_OVER)?;
        pace.look(now())?;
        let rate = pace.batches() / RATE_OVER.as_secs_f64();
        let mut pace = Pace::watch(self.testbed);
        let begin = now();
        let name = fault.kind.name;
        self.count_draw(fault);
        if !self.inject(fault)? {
            return Ok(());
        }
        let mut ended_at = None;
        let (end, back_at) = loop {
            self.pass(LOOK_EVERY)?;
            let now = now();
            pace.look(now)?;
            if !self.active.is_empty() {
                continue;
            }
            let end = *ended_at.get_or_insert(now);
            match pace.full_since(rate).filter(|since| *since >= end) {
                Some(since) => break (end, since),
                None if now > end + BACK_WITHIN => {
                    bail!("{name}: not at the full rate {BACK_WITHIN:?} after its end");
                }
                None => {}
            }
        };
        let used = Duration::from_secs_f64(pace.batches() / rate);
        self.outcome.costs.entry(name).or_default().add(Cost {
            lasted: end - begin,
            back: back_at - end,
            lost: begin.elapsed().saturating_sub(used),
            alone: pace.alone(),
        });
        Ok(())
    }

    /// Runs a hostile client and silent connections beside the trainers, and compares their waits with those
    /// just before.
    pub(super) fn measure_interference(&mut self) -> anyhow::Result<()> {
        let mut records = Tail::of_all(self.testbed);
        self.pass(interference::TIME)?;
        let before = longest_wait(&used(&mut records)?);
        let seed = self.seed.wrapping_add(self.outcome.interference.count);
        let silent = SilentConnections::open(self.testbed, self.supervisor.address.as_deref());
        let hostile = hostile_client::start(&self.supervisor, seed, interference::TIME)?;
        self.pass(interference::TIME)?;
        let Outcome { interference, violations, .. } = &mut self.outcome;
        violations.extend(interference.request_metrics(self.testbed, &silent));
        violations.extend(interference.add(&used(&mut records)?, before, hostile)?);
        Ok(())
    }
}
