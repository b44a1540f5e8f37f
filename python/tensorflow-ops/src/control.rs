//! The requests of `tierfeed/tensorflow/library.py`, as JSON: a feed is opened, observed and closed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tierfeed_client::to_usize;
use tierfeed_handoff::{Briefing, Hello, NamedDataset, Role};

use crate::{
    batch::Form,
    c_api::{ALIGN, Code, Failure},
    cold::ColdReader,
    feed::{self, Agent, Feed},
    fields::WantedField,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// Whether the ops are there.
    Check,
    Open(Box<Open>),
    Figures {
        feed: i64,
    },
    Close {
        feed: i64,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    socket: Option<PathBuf>,
    variables: BTreeMap<String, String>,
    trainer: u32,
    briefing: Briefing,
    /// The `tierfeed` program, which reads buckets.
    exe: PathBuf,
    /// The name of the dataset, if it is not the first one of its job.
    dataset: Option<String>,
    /// Whether the batch shall be one array; by default it is if all samples have one length.
    form: Option<FormName>,
    fields: Vec<WantedField>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FormName {
    Array,
    Rows,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Opened {
        feed: i64,
        /// The length of every sample, for a feed of arrays.
        sample_bytes: Option<usize>,
        /// Whether the samples of a batch lie behind each other without gaps where the agent puts them.
        is_without_copy: bool,
        has_labels: bool,
    },
    Figures {
        #[serde(flatten)]
        figures: feed::Figures,
        is_connected: bool,
        /// Epoch, step, address and length of the batches of the agent that tensors refer to.
        held: Vec<(u32, u32, usize, u64)>,
    },
    /// The message of `tierfeed.Reconfigure`.
    Wrong(String),
}

static FEEDS: Mutex<BTreeMap<i64, Arc<Feed>>> = Mutex::new(BTreeMap::new());

/// No number is given twice: a graph may name a feed that was closed.
static NEXT: AtomicI64 = AtomicI64::new(0);

fn feeds() -> MutexGuard<'static, BTreeMap<i64, Arc<Feed>>> {
    FEEDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The feed of a number, until it is closed.
pub(crate) fn feed(number: i64) -> Option<Arc<Feed>> {
    feeds().get(&number).cloned()
}

pub(crate) fn answer(request: &str, registered: Result<(), String>) -> String {
    let request = serde_json::from_str(request);
    let answer = match (registered, request) {
        (Err(missing), _) => Answer::Wrong(missing),
        (_, Err(error)) => Answer::Wrong(format!("the package and its library differ: {error}")),
        (_, Ok(Request::Check)) => Answer::Done,
        (_, Ok(Request::Open(open))) => {
            self::open(*open).unwrap_or_else(|failure| Answer::Wrong(failure.message))
        }
        (_, Ok(Request::Figures { feed })) => figures(feed),
        (_, Ok(Request::Close { feed })) => {
            let closed = feeds().remove(&feed);
            closed.into_iter().for_each(|it| it.close());
            Answer::Done
        }
    };
    serde_json::to_string(&answer).unwrap_or_else(|_| fault())
}

/// The answer if answering failed.
pub(crate) fn fault() -> String {
    r#"{"wrong":"a fault of tierfeed; please report it"}"#.to_owned()
}

fn open(open: Open) -> Result<Answer, Failure> {
    let Open { socket, variables, trainer, briefing, exe, dataset, form, fields } = open;
    let hello = Hello { trainer, ..Hello::launched(variables, Role::Trainer) };
    let agent = socket.map(|socket| Agent { socket, hello, dataset: dataset.clone() });
    let (name, rank) = (dataset, briefing.rank);
    let dataset = NamedDataset::find(&briefing, name.as_deref())
        .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))?;
    let cold = ColdReader::open(&briefing, dataset, fields, exe)?;
    let has_labels = cold.has_labels();
    let sample_bytes = cold.sample_bytes().map(to_usize).filter(|bytes| *bytes > 0);
    let form = match (form, sample_bytes) {
        (Some(FormName::Rows), _) | (None, None) => Form::Rows,
        (_, Some(len)) => Form::Array(len),
        (Some(FormName::Array), None) => {
            let message =
                "the samples of this dataset have different lengths: take rows or strings";
            return Err(Failure::new(Code::InvalidArgument, message));
        }
    };
    let feed = Arc::new(Feed::new(agent, cold, form, dataset, rank));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    feeds().insert(number, feed);
    let sample_bytes = if let Form::Array(len) = form { Some(len) } else { None };
    let is_without_copy = sample_bytes.is_none_or(|len| len.is_multiple_of(ALIGN));
    Ok(Answer::Opened { feed: number, sample_bytes, is_without_copy, has_labels })
}

fn figures(number: i64) -> Answer {
    let Some(feed) = feed(number) else {
        return Answer::Wrong("the dataset was closed".to_owned());
    };
    let held = feed.held();
    let held = held.iter().map(|it| (it.batch.epoch.0, it.batch.step.0, it.address, it.len.0));
    Answer::Figures {
        figures: feed.figures(),
        is_connected: feed.is_connected(),
        held: held.collect(),
    }
}
