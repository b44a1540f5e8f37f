//! Which order of a job file a loader reads in, if it is one that tierfeed knows.

use std::rc::Rc;

use super::Origin;
use crate::script::{
    find::{Finder, Found, argument_expr},
    finding::{Fact, Literal},
    known::{Default, Parameter},
    value::{Certainty, Env, Known, Value},
};

impl<'a> Finder<'_, 'a> {
    /// The order of a job file that this loader reads in.
    pub(super) fn order_of(&self, found: &Found<'a>, env: &Env<'a>, origin: &Origin<'a>) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        let none = |why: &str| {
            let fact = Fact { value: Literal::Nothing, ..order("none", Certainty::Unknown) };
            fact.because(why)
        };
        let argument =
            |name: &str, place| self.evaluator.argument(found.site.call, env, name, place);
        match (&*found.path, &*origin.path) {
            ("ffcv.loader.Loader", _) => {
                return none("FFCV permutes by itself, in an order of its own");
            }
            ("grain.DataLoader", _) => {
                return self.order_of_grain(argument("sampler", None).as_ref());
            }
            (dali, _) if dali.starts_with("nvidia.") => {
                return none("DALI shuffles by itself, in an order of its own");
            }
            (_, "streaming.StreamingDataset") => return Self::order_of_mosaic(origin),
            (_, "litdata.StreamingDataset") => {
                return none("LitData's order is none of tierfeed's");
            }
            (_, "webdataset.WebDataset") => {
                return none("WebDataset shuffles shards and a buffer, in an order of its own");
            }
            _ => {}
        }
        if let Some(Known { value, .. }) = argument("batch_sampler", Some(4))
            && value != Value::None
        {
            return order("published", Certainty::Likely)
                .because("it has a batch_sampler of its own");
        }
        if origin.is_part {
            let why = format!("{}: only some of the samples in the files", origin.name);
            return order("published", Certainty::Likely).because(why);
        }
        let shuffle = argument("shuffle", Some(2)).unwrap_or(Known::certain(Value::Bool(false)));
        match argument("sampler", Some(3)) {
            Some(sampler) if sampler.value != Value::None => {
                self.order_of_sampler(&sampler, &shuffle)
            }
            _ => self.order_of_flag(&shuffle),
        }
    }

    fn order_of_flag(&self, shuffle: &Known<'a>) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        match (shuffle.bool(), self.distributes_by_itself()) {
            (Some(true), Some(who)) => order("torch-distributed", Certainty::Likely)
                .because(format!("{who} puts in a DistributedSampler; torch-random with one rank")),
            (Some(true), None) => order("torch-random", shuffle.certainty).because("shuffle=True"),
            (Some(false), _) => {
                order("sequential", shuffle.certainty).because("no shuffle, no sampler")
            }
            (None, _) => {
                let why = shuffle.why.as_deref().unwrap_or("shuffle is not known");
                let fact = order("torch-random or sequential", Certainty::Unknown).because(why);
                Fact { value: Literal::Nothing, ..fact }
            }
        }
    }

    fn order_of_sampler(&self, sampler: &Known<'a>, shuffle: &Known<'a>) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        let made = sampler.alternatives().into_iter().find_map(|it| it.made().cloned());
        let Some(made) = made else {
            let why = "a sampler of its own: the trainer hands its order over";
            return order("published", Certainty::Likely).because(why);
        };
        let shuffles = self.evaluator.argument(made.call, &made.env, "shuffle", Some(3));
        let is_one = sampler.made().is_some();
        match &*made.path {
            "torch.utils.data.DistributedSampler" => {
                let shuffles = shuffles.unwrap_or(Known::certain(Value::Bool(true)));
                let name = match shuffles.bool() {
                    Some(true) => "torch-distributed",
                    Some(false) => "sequential",
                    None => return self.order_of_flag(&shuffles),
                };
                let certainty = if is_one { shuffles.certainty } else { Certainty::Likely };
                let fact = order(name, certainty);
                if is_one {
                    fact.because(format!("DistributedSampler, {}", self.evaluator.place_of(&made)))
                } else {
                    let alone = self.order_of_flag(&with_one_rank(shuffle));
                    fact.because(format!("with several ranks; {} with one", alone.text))
                }
            }
            "torch.utils.data.RandomSampler"
                if argument_expr(made.call, "replacement", Some(1)).is_none() =>
            {
                order("torch-random", Certainty::Certain).because("RandomSampler")
            }
            "torch.utils.data.SequentialSampler" => {
                order("sequential", Certainty::Certain).because("SequentialSampler")
            }
            other => {
                order("published", Certainty::Likely).because(format!("its sampler is {other}"))
            }
        }
    }

    fn order_of_mosaic(origin: &Origin<'a>) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        let Some(shuffle) = origin.facts.iter().find(|fact| fact.name == "shuffle") else {
            return order("sequential", Certainty::Likely)
                .because("StreamingDataset does not shuffle");
        };
        match shuffle.bool() {
            Some(true) => {
                order("mosaic", shuffle.certainty).because("StreamingDataset(shuffle=True)")
            }
            Some(false) => {
                order("sequential", shuffle.certainty).because("StreamingDataset(shuffle=False)")
            }
            None => {
                let why = shuffle.why.as_deref().unwrap_or("its shuffle is not known").to_owned();
                let fact = order("mosaic or sequential", Certainty::Unknown).because(why);
                Fact { value: Literal::Nothing, ..fact }
            }
        }
    }

    /// What the `DistributedSampler` of a loader is made with.
    pub(super) fn of_sampler(&self, found: &Found<'a>, env: &Env<'a>) -> Vec<Fact> {
        const SEED: Parameter =
            Parameter { name: "seed", place: Some(4), default: Default::Int(0) };
        const DROP: Parameter =
            Parameter { name: "drop_last", place: Some(5), default: Default::Bool(false) };

        let sampler = self.evaluator.argument(found.site.call, env, "sampler", Some(3));
        let alternatives = sampler.map(|sampler| sampler.alternatives()).unwrap_or_default();
        let mut made = alternatives.iter().filter_map(Known::made);
        let dealer = made.find(|made| &*made.path == "torch.utils.data.DistributedSampler");
        let Some(made) = dealer else { return Vec::new() };
        let fact = |parameter, name| {
            self.fact(parameter, made.call, &made.env).map(|fact| Fact { name, ..fact })
        };
        [fact(&SEED, "sampler.seed"), fact(&DROP, "sampler.drop_last")]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The seed that `grain.DataLoader` permutes with is that of its sampler.
    pub(super) fn seed_of_grain(&self, found: &Found<'a>, env: &Env<'a>) -> Option<Fact> {
        if &*found.path != "grain.DataLoader" {
            return None;
        }
        let sampler = self.evaluator.argument(found.site.call, env, "sampler", None)?;
        let made = sampler.made()?;
        let parameter = Parameter { name: "seed", place: None, default: Default::Silent };
        self.fact(&parameter, made.call, &made.env)
    }

    fn order_of_grain(&self, sampler: Option<&Known<'a>>) -> Fact {
        let order = |name: &str, certainty| Fact::said("order.shuffle", name, certainty);
        let Some(made) = sampler.and_then(Known::made) else {
            return order("published", Certainty::Likely).because("a sampler of its own");
        };
        let shuffle = self.evaluator.argument(made.call, &made.env, "shuffle", None);
        let shuffle = shuffle.unwrap_or(Known::certain(Value::Bool(false)));
        match shuffle.bool() {
            Some(true) => {
                let shards = self.evaluator.argument(made.call, &made.env, "shard_options", None);
                let shards =
                    shards.as_ref().and_then(Known::made).map(|made| Rc::clone(&made.path));
                if shards.as_deref() == Some("grain.NoSharding") {
                    return order("grain", shuffle.certainty).because("IndexSampler(shuffle=True)");
                }
                // `samplers.py`: the shard is taken first, and shuffled then.
                let why = "IndexSampler shards before it shuffles; with one process it is grain";
                let fact = order("none", Certainty::Unknown).because(why);
                Fact { value: Literal::Nothing, ..fact }
            }
            Some(false) => {
                order("sequential", shuffle.certainty).because("IndexSampler does not shuffle")
            }
            None => self.order_of_flag(&shuffle),
        }
    }

    /// What gives every rank its part without being asked to.
    pub(in crate::script::find) fn distributes_by_itself(&self) -> Option<&'static str> {
        self.calls.iter().find_map(|found| match &*found.path {
            "lightning.Trainer" => Some("Lightning"),
            _ => None,
        })
    }
}

/// In `shuffle=(sampler is None)` there is no sampler with one rank.
fn with_one_rank<'a>(shuffle: &Known<'a>) -> Known<'a> {
    let mut alternatives = shuffle.alternatives().into_iter();
    alternatives.find(|it| it.bool() == Some(true)).unwrap_or_else(|| shuffle.clone())
}
