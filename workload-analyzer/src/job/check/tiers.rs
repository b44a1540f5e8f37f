//! Checks the tiers that a job requests, and their sizes.

use tierfeed_core::{
    budget::{Percent, Request},
    id::NumaNode,
    order::Shuffle,
    retention::{
        in_place::{InPlaceMode, Verify},
        policy::{self, Stay},
    },
    tier::Kind,
    units::Bytes,
};

use super::Check;
use crate::{
    job::{
        AfterRun, JobError, JobScratch, KeyConflict, Presence, Reason, TierRequest,
        file::{
            CxlMemoryFile, JobScratchFile, MainMemoryFile, NumaNodeFile, Room, ScratchFile,
            SpeedFile, StorageFile, TiersFile,
        },
    },
    yaml::scalar::Checked,
};

/// The largest page size of any machine: a smaller RAM disk holds nothing.
const JOB_SCRATCH_MIN: Bytes = Bytes(64 << 10);

/// The initial share of free memory of DeepMemoryDL.
const RESERVE: Request = Request::Share(Percent::DEFAULT);

impl Check<'_> {
    pub(super) fn tiers(
        &self,
        typed: &TiersFile,
        chunk: Bytes,
    ) -> Result<Vec<TierRequest>, JobError> {
        let main = typed.main_memory.as_ref();
        let mut tiers =
            vec![main.map_or(Ok(request(Kind::MainMemory)), |it| self.main_memory(it))?];
        match (&typed.cxl_memory, main) {
            (Some(cxl), _) => tiers.push(self.cxl_memory(cxl)?),
            // A list with main memory is complete.
            (None, Some(_)) => {}
            (None, None) => tiers
                .push(TierRequest { presence: Presence::IfPresent, ..request(Kind::CxlMemory) }),
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
            return Err(self.conflict(&["job_scratch"], KeyConflict::NoScratchTier));
        }
        let size = typed.size.0.0;
        if size < JOB_SCRATCH_MIN {
            let reason = Reason::BelowPage { least: JOB_SCRATCH_MIN };
            return Err(self.invalid(&["job_scratch", "size"], &size.to_string(), reason));
        }
        let after_run = if typed.keep == Some(true) { AfterRun::Keep } else { AfterRun::Remove };
        let is_own = |tier: &TierRequest| tier.kind == Kind::Scratch && tier.path.is_none();
        if after_run == AfterRun::Keep && tiers.iter().any(is_own) {
            return Err(self.conflict(&["job_scratch", "keep"], KeyConflict::NothingKept));
        }
        Ok(Some(JobScratch { size, after_run }))
    }

    fn main_memory(&self, typed: &MainMemoryFile) -> Result<TierRequest, JobError> {
        let tier =
            self.tier(Kind::MainMemory, (typed.size, typed.reserve), typed.emulate.as_ref())?;
        Ok(TierRequest { direct: typed.direct.map_or(tier.direct, |it| it.0), ..tier })
    }

    fn cxl_memory(&self, typed: &CxlMemoryFile) -> Result<TierRequest, JobError> {
        let tier =
            self.tier(Kind::CxlMemory, (typed.size, typed.reserve), typed.emulate.as_ref())?;
        let nodes = typed.numa_nodes.as_deref();
        let numa_nodes = nodes.map(|it| self.numa_nodes(it)).transpose()?.unwrap_or_default();
        Ok(TierRequest { numa_nodes, direct: typed.direct.map_or(tier.direct, |it| it.0), ..tier })
    }

    fn scratch(&self, typed: &ScratchFile) -> Result<TierRequest, JobError> {
        let tier = self.tier(Kind::Scratch, (typed.size, typed.reserve), typed.emulate.as_ref())?;
        Ok(TierRequest {
            numa_nodes: typed.numa_node.iter().map(|node| NumaNode(node.0)).collect(),
            path: typed.path.as_ref().map(|path| path.0.below(self.directory)),
            ..tier
        })
    }

    fn storage(&self, typed: &StorageFile) -> Result<TierRequest, JobError> {
        let tier = self.tier(Kind::Storage, (typed.size, typed.reserve), typed.emulate.as_ref())?;
        Ok(TierRequest {
            path: Some(typed.path.0.below(self.directory)),
            writes_per_epoch: typed.writes_per_epoch.map(|it| it.0.0),
            ..tier
        })
    }

    fn tier(
        &self,
        kind: Kind,
        budget: (Option<Checked<Room>>, Option<Checked<Percent>>),
        emulate: Option<&SpeedFile>,
    ) -> Result<TierRequest, JobError> {
        let keys = ["tiers", kind.name()];
        let budget = match budget {
            (Some(size), None) => Request::Size(size.0.0),
            (None, Some(share)) => Request::Share(share.0),
            // A disk wears out, so its share is not chosen for the user.
            (None, None) if kind == Kind::Storage => {
                return Err(self.conflict(&keys, KeyConflict::NoBudget));
            }
            (None, None) => RESERVE,
            (Some(_), Some(_)) => return Err(self.conflict(&keys, KeyConflict::TwoBudgets)),
        };
        let speed = self.speed(&[keys[0], keys[1], "emulate"], emulate)?;
        Ok(TierRequest { budget, speed, ..request(kind) })
    }

    fn numa_nodes(&self, typed: &[NumaNodeFile]) -> Result<Vec<NumaNode>, JobError> {
        let keys = ["tiers", Kind::CxlMemory.name(), "numa_nodes"];
        if typed.is_empty() {
            return Err(self.conflict(&keys, KeyConflict::NoNumaNodes));
        }
        let mut nodes = Vec::new();
        for node in typed.iter().map(|node| NumaNode(node.0)) {
            if nodes.contains(&node) {
                return Err(self.invalid(&keys, &node.0.to_string(), Reason::Repeated));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Refuses `direct: always` if samples can never be read in place.
    pub(super) fn refuse_impossible_direct(
        &self,
        tiers: &[TierRequest],
        policy: policy::Kind,
        shuffle: Shuffle,
        verify: Verify,
    ) -> Result<(), JobError> {
        let Some(tier) = tiers.iter().find(|tier| tier.direct == InPlaceMode::Always) else {
            return Ok(());
        };
        let keys = ["tiers", tier.kind.name(), "direct"];
        if verify == Verify::Always {
            return Err(self.conflict(&keys, KeyConflict::DirectUnverified));
        }
        match policy.stay(shuffle) {
            Stay::ForGood | Stay::UntilRead => Ok(()),
            Stay::Unknown => Err(self.conflict(&keys, KeyConflict::DirectUnsettled { policy })),
        }
    }

    /// Refuses a tier of less than a chunk. Main memory may be smaller: staging needs no whole chunk.
    fn refuse_less_than_a_chunk(
        &self,
        tiers: &[TierRequest],
        chunk: Bytes,
    ) -> Result<(), JobError> {
        for tier in tiers.iter().filter(|tier| tier.kind != Kind::MainMemory) {
            if let Request::Size(size) = tier.budget
                && size < chunk
            {
                let keys = ["tiers", tier.kind.name(), "size"];
                return Err(self.invalid(&keys, &size.to_string(), Reason::BelowChunk { chunk }));
            }
        }
        Ok(())
    }
}

/// The default of `direct`. Trainers may overwrite a copy, and many do, so main memory is copied; a copy from
/// a CXL tier costs more.
fn default_direct(kind: Kind) -> InPlaceMode {
    match kind {
        Kind::CxlMemory => InPlaceMode::Auto,
        Kind::MainMemory | Kind::Scratch | Kind::Storage => InPlaceMode::Never,
    }
}

fn request(kind: Kind) -> TierRequest {
    TierRequest {
        kind,
        presence: Presence::Required,
        budget: RESERVE,
        numa_nodes: Vec::new(),
        path: None,
        writes_per_epoch: None,
        speed: None,
        direct: default_direct(kind),
    }
}
