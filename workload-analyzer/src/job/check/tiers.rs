//! Checks the tiers that a job requests, and their sizes.

use tierfeed_core::{
    id::NumaNode,
    order::Shuffle,
    retention::{
        in_place::InPlaceMode,
        policy::{self, Stay},
    },
    tier::Kind,
    units::Bytes,
};

use super::Check;
use crate::{
    job::{
        AfterRun, Budget, JobError, JobScratch, KeyConflict, Percent, Presence, Reason,
        TierRequest, Verify,
    },
    job_file::{
        CxlMemoryFile, JobScratchFile, MainMemoryFile, ScratchFile, StorageFile, Text, TierKeys,
        TiersFile, Whole,
    },
};

/// The largest page size of any machine: a smaller RAM disk holds nothing.
const JOB_SCRATCH_MIN: Bytes = Bytes(64 << 10);

/// The initial share of free memory of DeepMemoryDL.
const RESERVE: Budget = Budget::Reserve(Percent(20));

/// The most NUMA nodes of a kernel (`MAX_NUMNODES`).
const NUMA_NODES_MAX: u32 = 1_024;

impl Check<'_> {
    pub(super) fn tiers(
        &self,
        typed: Option<&TiersFile>,
        chunk: Bytes,
    ) -> Result<Vec<TierRequest>, JobError> {
        let nothing = TiersFile::default();
        let typed = typed.unwrap_or(&nothing);
        let main = typed.main_memory.as_ref();
        let mut tiers =
            vec![main.map_or(Ok(request(Kind::MainMemory)), |it| self.main_memory(it))?];
        match (&typed.cxl_memory, main) {
            (Some(cxl), _) => tiers.push(self.cxl_memory(cxl)?),
            // Who names main memory lists all tiers.
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
        let keys = ["job_scratch", "size"];
        let size = self.quantity::<Bytes>(&keys, &typed.size, "4 GiB")?;
        if size < JOB_SCRATCH_MIN {
            let reason = Reason::BelowPage { least: JOB_SCRATCH_MIN };
            return Err(self.invalid(&keys, &typed.size.0, reason));
        }
        let after_run = if typed.keep == Some(true) { AfterRun::Keep } else { AfterRun::Remove };
        let is_own = |tier: &TierRequest| tier.kind == Kind::Scratch && tier.path.is_none();
        if after_run == AfterRun::Keep && tiers.iter().any(is_own) {
            return Err(self.conflict(&["job_scratch", "keep"], KeyConflict::NothingKept));
        }
        Ok(Some(JobScratch { size, after_run }))
    }

    fn main_memory(&self, typed: &MainMemoryFile) -> Result<TierRequest, JobError> {
        let direct = self.direct(Kind::MainMemory, typed.direct.as_ref())?;
        Ok(TierRequest { direct, ..self.tier(Kind::MainMemory, typed.keys())? })
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

    fn direct(&self, kind: Kind, typed: Option<&Text>) -> Result<InPlaceMode, JobError> {
        let Some(typed) = typed else { return Ok(default_direct(kind)) };
        self.one_of(
            &direct_keys(kind),
            typed,
            &InPlaceMode::ALL,
            InPlaceMode::name,
            InPlaceMode::NAMES,
        )
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
        let keys = direct_keys(tier.kind);
        if verify == Verify::Always {
            return Err(self.conflict(&keys, KeyConflict::DirectUnverified));
        }
        match policy.stay(shuffle) {
            Stay::ForGood | Stay::UntilRead => Ok(()),
            Stay::Unknown => Err(self.conflict(&keys, KeyConflict::DirectUnsettled { policy })),
        }
    }

    fn scratch(&self, typed: &ScratchFile) -> Result<TierRequest, JobError> {
        let kind = Kind::Scratch;
        let tier = self.tier(kind, typed.keys())?;
        let numa_nodes = match &typed.numa_node {
            None => Vec::new(),
            Some(node) => {
                let keys = ["tiers", kind.name(), "numa_node"];
                self.numa_nodes(&keys, std::slice::from_ref(node))?
            }
        };
        let tier = TierRequest { numa_nodes, ..tier };
        match &typed.path {
            None => Ok(tier),
            Some(path) => self.in_directory(tier, path),
        }
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

    fn tier(&self, kind: Kind, typed: TierKeys<'_>) -> Result<TierRequest, JobError> {
        let keys = ["tiers", kind.name()];
        let below = |key| [keys[0], keys[1], key];
        let budget = match (typed.size, typed.reserve) {
            (Some(size), None) => Budget::Size(self.quantity(&below("size"), size, "16 GiB")?),
            (None, Some(share)) => Budget::Reserve(self.share(&below("reserve"), share)?),
            // A disk wears out, so its share is not chosen for the user.
            (None, None) if kind == Kind::Storage => {
                return Err(self.conflict(&keys, KeyConflict::NoBudget));
            }
            (None, None) => RESERVE,
            (Some(_), Some(_)) => return Err(self.conflict(&keys, KeyConflict::TwoBudgets)),
        };
        let speed = self.speed(&below("emulate"), typed.emulate)?;
        Ok(TierRequest { budget, speed, ..request(kind) })
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
        if nodes.is_empty() {
            Err(self.conflict(keys, KeyConflict::NoNumaNodes))
        } else {
            Ok(nodes)
        }
    }

    /// Refuses a tier of less than a chunk. Main memory may be smaller: staging needs no whole chunk.
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

fn direct_keys(kind: Kind) -> [&'static str; 3] {
    ["tiers", kind.name(), "direct"]
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
