//! Checks which tiers a job asks for, and how much of each.

use tierfeed_core::{
    id::NumaNode,
    order::Shuffle,
    retention::{
        in_place::Wish,
        policy::{self, Stay},
    },
    tier::Kind,
    units::Bytes,
};

use super::Check;
use crate::{
    job::{AfterRun, Budget, JobError, JobScratch, Misfit, Percent, Reason, TierRequest, Verify},
    job_file::{
        CxlMemoryFile, DirectoryFile, JobScratchFile, StorageFile, Text, TierKeys, TiersFile, Whole,
    },
};

/// A page of any machine: a RAM disk of less holds nothing.
const JOB_SCRATCH_MIN: Bytes = Bytes(64 << 10);

/// The share of the free memory that DeepMemoryDL starts with.
const RESERVE: Budget = Budget::Reserve(Percent(20));

/// NUMA nodes that a kernel can have (`MAX_NUMNODES`).
const NUMA_NODES_MAX: u32 = 1_024;

impl Check<'_> {
    pub(super) fn tiers(
        &self,
        typed: Option<&TiersFile>,
        chunk: Bytes,
    ) -> Result<Vec<TierRequest>, JobError> {
        let Some(typed) = typed else { return Ok(vec![request(Kind::MainMemory, RESERVE)]) };
        let Some(main) = &typed.main_memory else {
            return Err(self.misfit(&["tiers"], Misfit::NoMainMemory));
        };
        let direct = self.direct(Kind::MainMemory, main.direct.as_ref())?;
        let main = TierRequest { direct, ..self.tier(Kind::MainMemory, main.keys())? };
        let mut tiers = vec![main];
        if let Some(cxl) = &typed.cxl_memory {
            tiers.push(self.cxl_memory(cxl)?);
        }
        if let Some(scratch) = &typed.scratch {
            tiers.push(self.scratch(scratch)?);
        }
        if let Some(storage) = &typed.storage {
            tiers.push(self.storage(storage)?);
        }
        self.refuse_less_than_a_chunk(&tiers, chunk)?;
        Ok(tiers)
    }

    pub(super) fn job_scratch(
        &self,
        typed: Option<&JobScratchFile>,
        tiers: &[TierRequest],
    ) -> Result<Option<JobScratch>, JobError> {
        let Some(typed) = typed else { return Ok(None) };
        if !tiers.iter().any(|tier| tier.kind == Kind::Scratch) {
            return Err(self.misfit(&["job_scratch"], Misfit::NoScratchTier));
        }
        let keys = ["job_scratch", "size"];
        let size = self.quantity::<Bytes>(&keys, &typed.size, "4 GiB")?;
        if size < JOB_SCRATCH_MIN {
            return Err(self.invalid(
                &keys,
                &typed.size.0,
                Reason::BelowChunk { chunk: JOB_SCRATCH_MIN },
            ));
        }
        let after_run = if typed.keep == Some(true) { AfterRun::Keep } else { AfterRun::Remove };
        Ok(Some(JobScratch { size, after_run }))
    }

    fn cxl_memory(&self, typed: &CxlMemoryFile) -> Result<TierRequest, JobError> {
        let kind = Kind::CxlMemory;
        let tier = self.tier(kind, typed.keys())?;
        let numa_nodes = match &typed.numa_nodes {
            None => Vec::new(),
            Some(nodes) => self.numa_nodes(&["tiers", kind.name(), "numa_nodes"], nodes)?,
        };
        let direct = self.direct(kind, typed.direct.as_ref())?;
        Ok(TierRequest { numa_nodes, direct, ..tier })
    }

    fn direct(&self, kind: Kind, typed: Option<&Text>) -> Result<Wish, JobError> {
        let Some(typed) = typed else { return Ok(direct_unless_said(kind)) };
        let known = Wish::ALL.into_iter().find(|wish| wish.name() == typed.0);
        let reason = Reason::NotOneOf { allowed: Wish::NAMES };
        known.ok_or_else(|| self.invalid(&direct_keys(kind), &typed.0, reason))
    }

    /// Refuses to read in place always where it never can be.
    pub(super) fn refuse_impossible_direct(
        &self,
        tiers: &[TierRequest],
        policy: policy::Kind,
        shuffle: Shuffle,
        verify: Verify,
    ) -> Result<(), JobError> {
        let Some(tier) = tiers.iter().find(|tier| tier.direct == Wish::Always) else {
            return Ok(());
        };
        let keys = direct_keys(tier.kind);
        if verify == Verify::Always {
            return Err(self.misfit(&keys, Misfit::DirectUnverified));
        }
        match policy.stay(shuffle) {
            Stay::ForGood | Stay::UntilRead => Ok(()),
            Stay::Unknown => Err(self.misfit(&keys, Misfit::DirectUnsettled { policy })),
        }
    }

    fn scratch(&self, typed: &DirectoryFile) -> Result<TierRequest, JobError> {
        self.in_directory(self.tier(Kind::Scratch, typed.keys())?, &typed.path)
    }

    fn storage(&self, typed: &StorageFile) -> Result<TierRequest, JobError> {
        let tier = self.tier(Kind::Storage, typed.keys())?;
        let tier = self.in_directory(tier, &typed.path)?;
        let keys = ["tiers", Kind::Storage.name(), "writes_per_epoch"];
        let writes = typed.writes_per_epoch.as_ref();
        let writes_per_epoch =
            writes.map(|typed| self.quantity(&keys, typed, "20 GiB")).transpose()?;
        Ok(TierRequest { writes_per_epoch, ..tier })
    }

    fn in_directory(&self, tier: TierRequest, typed: &Text) -> Result<TierRequest, JobError> {
        let path = self.path(&["tiers", tier.kind.name(), "path"], typed)?;
        Ok(TierRequest { path: Some(path), ..tier })
    }

    /// What every kind has.
    fn tier(&self, kind: Kind, typed: TierKeys<'_>) -> Result<TierRequest, JobError> {
        let keys = ["tiers", kind.name()];
        let below = |key| [keys[0], keys[1], key];
        let budget = match (typed.size, typed.reserve) {
            (Some(size), None) => Budget::Size(self.quantity(&below("size"), size, "16 GiB")?),
            (None, Some(share)) => Budget::Reserve(self.share(&below("reserve"), share)?),
            (None, None) => return Err(self.misfit(&keys, Misfit::NoBudget)),
            (Some(_), Some(_)) => return Err(self.misfit(&keys, Misfit::TwoBudgets)),
        };
        let speed = self.speed(&below("emulate"), typed.emulate)?;
        Ok(TierRequest { speed, ..request(kind, budget) })
    }

    fn numa_nodes(&self, keys: &[&str], typed: &[Whole]) -> Result<Vec<NumaNode>, JobError> {
        let mut nodes = Vec::new();
        for node in typed {
            let node = NumaNode(self.whole(keys, *node, 0..=NUMA_NODES_MAX - 1)?);
            if nodes.contains(&node) {
                return Err(self.invalid(keys, &node.0.to_string(), Reason::Repeated));
            }
            nodes.push(node);
        }
        if nodes.is_empty() { Err(self.misfit(keys, Misfit::NoNumaNodes)) } else { Ok(nodes) }
    }

    /// Main memory is left out: staging takes what it needs, even if no whole chunk is left.
    fn refuse_less_than_a_chunk(
        &self,
        tiers: &[TierRequest],
        chunk: Bytes,
    ) -> Result<(), JobError> {
        for tier in tiers.iter().filter(|tier| tier.kind != Kind::MainMemory) {
            if let Budget::Size(size) = tier.budget
                && size < chunk
            {
                let keys = ["tiers", tier.kind.name(), "size"];
                return Err(self.invalid(&keys, &size.to_string(), Reason::BelowChunk { chunk }));
            }
        }
        Ok(())
    }
}

/// The key of direct use.
fn direct_keys(kind: Kind) -> [&'static str; 3] {
    ["tiers", kind.name(), "direct"]
}

/// Trainers may write over a copy, and many do; that of a CXL tier costs more than that of main memory.
fn direct_unless_said(kind: Kind) -> Wish {
    match kind {
        Kind::CxlMemory => Wish::Auto,
        Kind::MainMemory | Kind::Scratch | Kind::Storage => Wish::Never,
    }
}

fn request(kind: Kind, budget: Budget) -> TierRequest {
    TierRequest {
        kind,
        budget,
        numa_nodes: Vec::new(),
        path: None,
        writes_per_epoch: None,
        speed: None,
        direct: direct_unless_said(kind),
    }
}
