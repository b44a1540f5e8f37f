//! One chaos run: inflicts faults, heals them, has everybody get on, and looks at what they hold.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;

use crate::{
    books::Books,
    cast::{Cast, Endings, tail},
    clock::{Clock, pause},
    cure::{Cure, Effect},
    fault::{Deck, Kind, Range},
    footprint,
    inflict::Tools,
    part::{Part, RANKS},
    record,
    scene::Scene,
    settings::Settings,
    siege::{self, Marks, Sieges},
    silence::Silence,
    verdict::{Sample, seconds},
};

const POLL_EVERY: Duration = Duration::from_millis(10);

/// After so many faults all are healed, and everybody must get on.
const FAULTS_BETWEEN_CALMS: u32 = 10;

/// How long a calm lasts before what the agent holds is looked at.
const CALM: Duration = Duration::from_millis(1500);

/// Parts of the time: all faults, those that the agent survives, none.
const TWELFTHS: [u32; 3] = [5, 5, 2];

/// Between two looks at what everybody holds while nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In a calm every rank gets its batches from the agent again within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// A fault that lasts.
#[derive(Debug)]
struct Active {
    kind: Kind,
    until: Duration,
    cure: Cure,
}

/// One chaos run.
pub(crate) struct Play<'a> {
    settings: &'a Settings,
    pub(crate) scene: &'a Scene,
    clock: Clock,
    active: Vec<Active>,
    possible: Vec<Kind>,
    /// How often each fault was drawn.
    pub(crate) drawn: BTreeMap<&'static str, u64>,
    /// How often each fault took place.
    pub(crate) inflicted: BTreeMap<&'static str, u64>,
    /// What everybody held at quiet moments.
    pub(crate) samples: Vec<Sample>,
    /// How often memory was short in the life of the last agent.
    pub(crate) pressed: u64,
    /// The longest that everybody took to get on after all faults were healed.
    pub(crate) recovery_max: Duration,
    /// What trainers waited beside a hostile client.
    pub(crate) sieges: Sieges,
    /// What was not as it should be on the way.
    pub(crate) violations: Vec<String>,
}

impl<'a> Play<'a> {
    pub(crate) fn new(settings: &'a Settings, scene: &'a Scene, clock: Clock) -> Self {
        let possible = Kind::ALL.into_iter().filter(|kind| kind.left_out(scene).is_none());
        Self {
            settings,
            scene,
            clock,
            active: Vec::new(),
            possible: possible.collect(),
            drawn: BTreeMap::new(),
            inflicted: Kind::ALL.into_iter().map(|kind| (kind.name(), 0)).collect(),
            samples: Vec::new(),
            pressed: 0,
            recovery_max: Duration::ZERO,
            sieges: Sieges::default(),
            violations: Vec::new(),
        }
    }

    /// From the first process to the end of the last.
    pub(crate) fn all(&mut self, cast: &mut Cast, say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        cast.begin(self.scene)?;
        self.calm(cast)?;
        let [all, lives, steady] = TWELFTHS.map(|part| self.settings.time * part / 12);
        for (range, time) in [(Range::All, all), (Range::AgentLives, lives)] {
            let mut deck = Deck::new(self.settings.seed, range, &self.possible);
            let begin = self.clock.now();
            self.pressed = 0;
            while self.clock.since(begin) < time {
                for _ in 0..FAULTS_BETWEEN_CALMS {
                    self.inflict(&mut deck, cast)?;
                }
                self.heal(cast)?;
                self.calm(cast)?;
                self.besiege(cast)?;
                say(&format!("{} faults so far", self.inflicted.values().sum::<u64>()));
            }
        }
        self.watch(steady, cast)?;
        self.end(cast)
    }

    /// Lets everybody train, and looks at what they hold.
    fn watch(&mut self, time: Duration, cast: &mut Cast) -> anyhow::Result<()> {
        let begin = self.clock.now();
        while self.clock.since(begin) < time {
            self.pass(LOOK_EVERY, cast)?;
            Part::all().try_for_each(|part| self.look(part, cast))?;
        }
        Ok(())
    }

    /// Takes note of what a part holds.
    fn look(&mut self, part: Part, cast: &Cast) -> anyhow::Result<()> {
        let before = self.books(part)?;
        let is_gone = || format!("{} is there in a calm", part.name());
        let held = cast.pid(part).and_then(footprint::of).with_context(is_gone)?;
        // Chunks come and go meanwhile.
        let books = before.max(self.books(part)?);
        let (at_s, life) = (seconds(self.clock.now()), cast.starts(part));
        self.samples.push(Sample { part: part.name(), at_s, life, held, books });
        Ok(())
    }

    fn books(&self, part: Part) -> anyhow::Result<Option<Books>> {
        let socket = || self.scene.agent_dir().join("observe.sock");
        (part == Part::Agent).then(|| Books::read(&socket())).transpose()
    }

    /// Leaves the trainers alone with a hostile client and silent connections, and compares what they wait with what they waited
    /// just before.
    fn besiege(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        let quiet = Marks::set(self.scene)?;
        self.pass(siege::TIME, cast)?;
        let before = quiet.wait_max(self.scene)?;
        let marks = Marks::set(self.scene)?;
        let seed = self.settings.seed.wrapping_add(self.sieges.count);
        let address = cast.address();
        let silence = Silence::begin(self.scene, address.as_deref());
        let hostile = self.tools(address.as_deref()).hostile(seed, siege::TIME)?;
        self.pass(siege::TIME, cast)?;
        let unanswered = self.sieges.ask(self.scene, self.clock, &silence);
        self.violations.extend(unanswered);
        let faults = self.sieges.note(self.scene, &marks, before, hostile)?;
        self.violations.extend(faults);
        Ok(())
    }

    fn tools<'b>(&'b self, manager: Option<&'b str>) -> Tools<'b> {
        Tools {
            scene: self.scene,
            programs: &self.settings.programs,
            manager,
            pressure: self.settings.pressure,
        }
    }

    /// Inflicts the next fault, and lets the pause after it pass.
    fn inflict(&mut self, deck: &mut Deck, cast: &mut Cast) -> anyhow::Result<()> {
        let fault = deck.draw();
        *self.drawn.entry(fault.kind.name()).or_default() += 1;
        if fault.kind.ends_agent() && self.active.iter().any(|it| it.cure.needs_agent()) {
            return self.pass(fault.pause, cast);
        }
        let address = cast.address();
        if let Some(cure) = self.tools(address.as_deref()).inflict(fault, cast)? {
            self.pressed += u64::from(fault.kind == Kind::MemoryShort);
            let until = self.clock.now() + fault.lasts;
            self.active.push(Active { kind: fault.kind, until, cure });
        }
        self.pass(fault.pause, cast)
    }

    /// Lets time pass: heals what is over, starts again what was killed.
    fn pass(&mut self, time: Duration, cast: &mut Cast) -> anyhow::Result<()> {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            let now = self.clock.now();
            let is_over =
                |it: &mut Active| it.until <= now && it.cure.is_ready(now.saturating_sub(it.until));
            let over: Vec<Active> = self.active.extract_if(.., is_over).collect();
            for Active { kind, cure, .. } in over {
                let effect = cure.apply(cast, self.scene)?;
                let count = self.inflicted.entry(kind.name()).or_default();
                *count += u64::from(effect == Effect::Inflicted);
            }
            self.supervise(cast)?;
            pause(POLL_EVERY);
        }
        Ok(())
    }

    fn supervise(&self, cast: &mut Cast) -> anyhow::Result<()> {
        let is_excused = self.active.iter().any(|it| it.cure.excuses_agent());
        let endings = if is_excused { Endings::AgentMayFail } else { Endings::Unexpected };
        cast.supervise(self.scene, endings)
    }

    fn heal(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        while !self.active.is_empty() {
            self.pass(POLL_EVERY, cast)?;
        }
        Ok(())
    }

    /// Without faults: every rank gets on by the agent, within a limit. Then what the agent holds.
    fn calm(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        let begin = self.clock.now();
        let served = |scene: &Scene| -> Vec<u64> {
            (0..RANKS).map(|rank| record::served(&scene.record(rank))).collect()
        };
        let before = served(self.scene);
        while served(self.scene).iter().zip(&before).any(|(now, before)| now <= before) {
            let took = self.clock.since(begin);
            if took > RECOVERY_MAX {
                bail!("not every rank gets batches from the agent {took:?} after the last fault");
            }
            self.pass(POLL_EVERY * 5, cast)?;
        }
        self.recovery_max = self.recovery_max.max(self.clock.since(begin));
        // Until here the agent had to do without their end.
        cast.end_orphans();
        self.pass(CALM, cast)?;
        self.look(Part::Agent, cast)
    }

    /// Has everybody end in good order.
    fn end(&mut self, cast: &mut Cast) -> anyhow::Result<()> {
        fs::write(self.scene.stop(), "")?;
        let trainers = (0..RANKS).map(Part::Trainer);
        for part in trainers.chain([Part::Agent, Part::Manager]) {
            if !matches!(part, Part::Trainer(_)) {
                cast.signal(part, Signal::SIGTERM)?;
            }
            let status = cast.end(part)?;
            if !status.success() {
                let said = tail(self.scene, part);
                bail!("{} was asked to end and ended with {status}:\n{said}", part.name());
            }
        }
        Ok(())
    }
}
