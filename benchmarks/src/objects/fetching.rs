//! Our side: the fetcher of the agent, with places in staging memory that are used again.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tierfeed_core::{id::SampleId, tier::Locality, units::Bytes};
use tierfeed_dataset::read::ReadError;
use tierfeed_dataset::{Dataset, Format, Index, format::Raw, source::Location};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::fetcher::{Fetch, Fetcher as _, ObjectFetcher, ObjectSettings, Target};

use super::{
    OURS,
    client::{Client, Turn, address, store, timed},
    server::Kind,
};

/// A fetch is answered within this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// The fetcher, made anew for each kind.
pub(super) struct Fetching {
    endpoint: String,
    ready: Option<Ready>,
}

struct Ready {
    kind: &'static Kind,
    fetcher: ObjectFetcher,
    region: Arc<Region>,
    /// Samples in flight and waiting; staging has room for more than the requests in flight.
    places: usize,
    ended: (SyncSender<Ended>, Receiver<Ended>),
}

/// The place and its sample, or the reason for a failure.
type Ended = Result<(usize, usize), String>;

impl Fetching {
    pub(super) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), ready: None }
    }
}

impl Client for Fetching {
    fn name(&self) -> &'static str {
        OURS
    }

    fn prepare(&mut self, kind: &'static Kind) -> anyhow::Result<()> {
        self.ready = None;
        let ready = Ready::new(&self.endpoint, kind)?;
        ready.read(&mut |place, number| ready.verify(place, number))?;
        self.ready = Some(ready);
        Ok(())
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let ready = self.ready.as_ref().filter(|ready| ready.kind.prefix == kind.prefix);
        let ready = ready.context("not prepared")?;
        timed(|| ready.read(&mut |_, _| Ok(())))
    }
}

impl Ready {
    fn new(endpoint: &str, kind: &'static Kind) -> anyhow::Result<Self> {
        let url = format!("s3://bucket/{}", kind.prefix);
        let format = Format::Raw(Raw::of_records(Bytes(kind.bytes)));
        let dataset = Dataset::new(Location::Bucket(address(endpoint, &url)), format);
        let index = Index::build(&dataset, None, &mut |_| ())?;
        ensure!(index.len() as usize == kind.objects, "{} objects were listed", index.len());
        let requests_max = NonZeroUsize::new(kind.requests).context("no requests")?;
        let settings = ObjectSettings { requests_max, ..ObjectSettings::default() };
        let client = store(endpoint, &url, &settings.patience.without_retries())?;
        let places = (2 * kind.requests).min(kind.objects);
        let fetches_max = NonZeroUsize::new(places).context("no places")?;
        let fetcher = ObjectFetcher::start(Arc::new(index), client, settings, fetches_max)?;
        let request = Request {
            len: Bytes(places as u64 * kind.bytes),
            locality: Locality::Anywhere,
            name: "tierfeed-bench-objects",
            pages: Pages::Huge,
        };
        let region = Arc::new(Region::allocate(&request)?);
        Ok(Self { kind, fetcher, region, places, ended: sync_channel(places) })
    }

    /// Reads every object; `see` checks each before its place is used again.
    fn read(&self, see: &mut dyn FnMut(usize, usize) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut numbers = 0..self.kind.objects;
        let mut open = 0;
        for (place, number) in (0..self.places).zip(numbers.by_ref()) {
            self.start(place, number)?;
            open += 1;
        }
        while open > 0 {
            let ended = self.ended.1.recv_timeout(PATIENCE).context("a fetch is not answered")?;
            let (place, number) = ended.map_err(anyhow::Error::msg)?;
            see(place, number)?;
            match numbers.next() {
                Some(next) => self.start(place, next)?,
                None => open -= 1,
            }
        }
        Ok(())
    }

    fn start(&self, place: usize, number: usize) -> anyhow::Result<()> {
        let len = Bytes(self.kind.bytes);
        let offset = Bytes(place as u64 * len.0);
        let to = Target::new(Arc::clone(&self.region), offset, len);
        let ended = self.ended.0.clone();
        let answer = move |outcome: Result<(), ReadError>| {
            let outcome = outcome.map(|()| (place, number)).map_err(|error| error.to_string());
            // After a failure the receiver is gone.
            let _ = ended.send(outcome);
        };
        self.fetcher.start(Fetch::new(SampleId(u32::try_from(number)?), to, answer));
        Ok(())
    }

    fn verify(&self, place: usize, number: usize) -> anyhow::Result<()> {
        let len = usize::try_from(self.kind.bytes)?;
        let mut bytes = vec![0; len];
        self.region.read(Bytes((place * len) as u64), &mut bytes)?;
        let byte = |at: usize| u8::try_from((31 * at + 7 * number) % 251).unwrap_or(0);
        let period: Vec<u8> = (0..251).map(byte).collect();
        let is_same = bytes.chunks(period.len()).all(|chunk| *chunk == period[..chunk.len()]);
        ensure!(is_same, "object {number} is not what the server has");
        Ok(())
    }
}
