//! Questions over the socket, one JSON line each, and their answers.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cawl_client::protocol::{Failure, PROTOCOL, Recorded, Recording, Request, RunStarted, Subscription};
use cawl_host::allowance;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::asker::{Asker, LATE, json};
use crate::connections::{Connections, Role};
use crate::engine::{Engine, Input, OF_A_UNIT, begin_run, create_trace, end_run};
use crate::messages::Messages;
use crate::{subscribe, task};

/// Longest question, in bytes: a profile fits.
const QUESTION_MAX: u64 = 1 << 20;

/// Time without a read after which an answer's connection is closed.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// Pushes that a subscriber may be behind, in addition to its socket's buffer.
const BEHIND: usize = 8;

/// Seconds that a recording takes.
const RECORDED: std::ops::RangeInclusive<f64> = 0.1..=600.0;

/// A connection with questions.
pub struct Questions {
    /// The open connections.
    pub connections: Arc<Connections>,
    /// For inputs in order with the events.
    pub engine: mpsc::Sender<Input>,
    /// For questions, which may overtake them.
    pub asker: Asker,
    /// Number of the connection.
    pub id: u32,
}

impl Questions {
    /// Answers until the other side, which is this process if known, disconnects or subscribes.
    pub async fn answer(self, messages: Messages, peer: Option<u32>) -> anyhow::Result<()> {
        let (reader, mut writer) = messages.stream.into_split();
        let mut stream = BufReader::new(Cursor::new(messages.bytes).chain(reader));
        if !self.connections.may_ask(self.id) {
            let error = "too many ask at the same time; try again in a moment".to_owned();
            return send(&mut writer, &(json(&Failure { error }) + "\n")).await;
        }
        loop {
            self.connections.settle_role(self.id, Role::Client);
            let mut line = Vec::new();
            (&mut stream).take(QUESTION_MAX).read_until(b'\n', &mut line).await?;
            if line.is_empty() {
                return Ok(());
            }
            self.connections.settle_role(self.id, Role::Asking);
            let is_whole = line.len() < QUESTION_MAX as usize || line.ends_with(b"\n");
            let answer = if is_whole {
                match serde_json::from_slice(&line).context("not a request this daemon knows") {
                    Ok(Request::Subscribe(subscription)) => match self.asker.subscribe() {
                        Ok(_place) => return self.push(&subscription, stream, writer).await,
                        Err(error) => Err(error.into()),
                    },
                    Ok(request) => self.request(request, peer).await,
                    Err(error) => Err(error),
                }
            } else {
                Err(anyhow::anyhow!("a question has at most {QUESTION_MAX} bytes"))
            };
            let answer = answer.unwrap_or_else(|error| json(&Failure { error: format!("{error:#}") }));
            send(&mut writer, &(answer + "\n")).await?;
            if !is_whole {
                return Ok(());
            }
        }
    }

    async fn request(&self, request: Request, peer: Option<u32>) -> anyhow::Result<String> {
        let asker = &self.asker;
        match request {
            Request::BeginRun(spec) => {
                Ok(json(&RunStarted { run: begin_run(spec, &self.engine, peer).await? }))
            }
            Request::Running { run } => {
                self.connections.settle().await;
                Ok(json(&asker.running(run).await?))
            }
            Request::EndRun { run, now, mut end } => {
                let report = if now {
                    asker.end_run_now(run, end).await?
                } else {
                    end.notes.extend(self.connections.settle().await);
                    end_run(run, end, &self.engine).await?
                };
                Ok(json(&report.with_context(|| format!("there is no run {run}"))?))
            }
            // It ends in time even if who asked is gone.
            Request::Record(recording) => Ok(json(&task::spawn(record(asker.clone(), recording)).await??)),
            question => Ok(asker.answer(question).await?),
        }
    }

    /// Pushes until the other side disconnects or does not keep up.
    async fn push(
        &self,
        subscription: &Subscription,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> anyhow::Result<()> {
        let (lines, mut waiting) = mpsc::channel::<String>(BEHIND);
        // As the client's `Push`.
        let encode = |topic: &str, data: &str| format!("{{\"topic\":{topic},\"data\":{data}}}\n");
        let write = async {
            while let Some(line) = waiting.recv().await {
                writer.write_all(line.as_bytes()).await?;
            }
            Ok::<(), std::io::Error>(())
        };
        let hang_up = async {
            // Its input is ignored; only its end matters.
            let mut said = [0; 256];
            while matches!(reader.read(&mut said).await, Ok(1..)) {}
        };
        tokio::select! {
            ended = subscribe::feed(&self.asker, subscription, encode, lines) => ended?,
            written = write => written?,
            () = hang_up => {}
        }
        Ok(())
    }
}

/// Records the calls of all programs for a time.
async fn record(asker: Asker, Recording { trace, for_s }: Recording) -> anyhow::Result<Recorded> {
    anyhow::ensure!(RECORDED.contains(&for_s), "a recording takes 0.1 to 600 seconds");
    let created = tokio::task::spawn_blocking(move || create_trace(&trace)).await?;
    let trace =
        created.map_err(|error| anyhow::anyhow!("{}. {OF_A_UNIT}", allowance::with_remedy(&error)))?;
    let before = asker.look_up(|engine| engine.begin_recording(trace)).await?.map_err(anyhow::Error::msg)?;
    tokio::time::sleep(Duration::from_secs_f64(for_s) + LATE).await;
    let ended = asker.look_up(Engine::end_recording).await?;
    let (trace, calls) = ended.context("the recording has been ended")?;
    let failure = tokio::task::spawn_blocking(move || trace.finish()).await?;
    anyhow::ensure!(failure.is_none(), failure.unwrap_or_default());
    Ok(Recorded { schema: PROTOCOL, calls: calls - before })
}

/// Sends an answer, with the time limit between reads.
async fn send(writer: &mut (impl AsyncWrite + Unpin), answer: &str) -> anyhow::Result<()> {
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        let taken = timeout(TAKEN_WITHIN, writer.write(rest)).await;
        let taken = taken.context("who asked does not take the answer")??;
        anyhow::ensure!(taken > 0, "who asked is gone");
        rest = &rest[taken..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_sent_as_slowly_as_it_is_taken_but_not_to_one_who_takes_none() {
        let (mut writer, mut reader) = tokio::io::duplex(4);
        let answer = "an answer that is longer than what fits";
        let slow = tokio::spawn(async move {
            let mut taken = String::new();
            while taken.len() < answer.len() {
                tokio::time::sleep(TAKEN_WITHIN / 2).await;
                let mut bytes = [0; 4];
                let length = reader.read(&mut bytes).await.unwrap();
                taken += std::str::from_utf8(&bytes[..length]).unwrap();
            }
            (reader, taken)
        });
        send(&mut writer, answer).await.unwrap();
        let (_reader, taken) = slow.await.unwrap();
        assert_eq!(taken, answer);
        let error = send(&mut writer, answer).await.unwrap_err();
        assert!(error.to_string().contains("does not take"), "{error:#}");
    }
}
