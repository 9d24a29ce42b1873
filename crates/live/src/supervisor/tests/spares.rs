//! One that is ready and nobody's: what it has lost meanwhile makes it nobody's for ever.

use super::*;
use crate::LiveError;
use crate::supervisor::Run as _;

/// One that waits, and what its end is asked of.
async fn spare(hostile: Option<Hostile>) -> (Arc<TempDir>, Home, Supervisor, Arc<FakeRun>) {
    let (folder, state) = folder();
    let home = Home::new(&state).unwrap();
    let (setup, carrier, run) = made(&home, &state, With { hostile, ..With::default() }).unwrap();
    (folder, home, Supervisor::ready(setup, carrier).await.unwrap(), run)
}

async fn taken(supervisor: Supervisor) -> Result<Supervisor, LiveError> {
    tokio::time::timeout(LONG, supervisor.taken((None, None), |_, _| Ok(()))).await.expect("it is not answered")
}

#[tokio::test]
async fn one_that_is_whole_is_given_out() {
    let (_folder, home, supervisor, run) = spare(None).await;
    let supervisor = taken(supervisor).await.unwrap();
    assert_eq!(home.list(false).unwrap().len(), 1);
    run.kill();
    supervisor.serve().await;
}

#[tokio::test]
async fn one_whose_broker_has_ended_is_not_given_out_and_ends_by_itself() {
    let (_folder, home, supervisor, run) = spare(None).await;
    run.lost.store(true, std::sync::atomic::Ordering::Relaxed);
    let Err(LiveError::Start { why }) = taken(supervisor).await else { panic!("it was given out") };
    assert!(why.contains("broker"), "{why}");
    assert_eq!(home.list(true).unwrap(), [], "nothing is written down of it");
    let (_folder, _home, supervisor, run) = spare(None).await;
    run.lost.store(true, std::sync::atomic::Ordering::Relaxed);
    let waits = supervisor.wait(std::future::pending::<Option<()>>());
    assert!(tokio::time::timeout(LONG, waits).await.expect("it waits for ever").is_none());
}

/// Its reader has not been told yet: nothing ran since.
#[tokio::test]
async fn one_whose_agent_has_ended_just_now_is_not_given_out() {
    let (_folder, home, supervisor, run) = spare(None).await;
    let agent = supervisor.agent.as_ref().unwrap().try_clone().unwrap();
    rustix::net::shutdown(&agent, rustix::net::Shutdown::Both).unwrap();
    assert!(run.end.borrow().is_none());
    let Err(LiveError::Start { why }) = taken(supervisor).await else { panic!("it was given out") };
    assert!(why.contains("agent"), "{why}");
    assert_eq!(home.list(true).unwrap(), []);
}
