//! What was built: sandboxes made of it, its tags, and its end.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use live::template::{INSIDE, PATH};
use sandbox::PolicyLayer;

use super::image::LISTED;
use super::{HOME, IMAGE, set};
use crate::answer::Problem;
use crate::app::{AppState, Order, load};
use crate::built::{Build, BuiltTemplate, Tag, Template, no_such, parse_template_name};
use crate::clock::now_ms;
use crate::keys::Key;
use crate::labels;
use crate::templates::{BASE, TemplateLayers};

const MIB: u64 = 1 << 20;
/// Most tags of a template.
const MAX_TAGS: usize = 50;

impl AppState {
    /// The build that a word of a key means (`NAME[:TAG]`, or an id), if it is ready; none where no template of the key is called so.
    ///
    /// # Errors
    /// There is such a template, and nothing of it is ready.
    pub(crate) async fn ready(
        &self,
        key: &Key,
        text: &str,
    ) -> Result<Option<(Template, Build, BuiltTemplate)>, Problem> {
        let Ok(word) = parse_template_name("templateID", text) else { return Ok(None) };
        let Some(template) = self.built(key, &word.name).await? else { return Ok(None) };
        let found = template.tagged(word.tag()).map(|(build, kept)| (build.clone(), kept.clone()));
        if let Some((build, kept)) = found {
            return Ok(Some((template, build, kept)));
        }
        let tags: Vec<&str> = template.tags.keys().map(String::as_str).collect();
        let what = format!("the template {} has nothing that is ready with the tag `{}`", template.name, word.tag());
        let (why, instead) = match tags.as_slice() {
            [] => ("none of its builds succeeded so far", "build it, and wait for it".to_owned()),
            tags => ("no build that succeeded has this tag", format!("its tags are {}", tags.join(", "))),
        };
        Err(Problem::new(StatusCode::BAD_REQUEST, "serve/not-built", what, why, &instead).about("templateID"))
    }

    /// What makes a sandbox of something that a key may name as a template: of the server, of its own, or a snapshot.
    pub(crate) async fn order_of(&self, key: &Key, template: &str) -> Result<Order, Problem> {
        let unknown = match self.templates.find(template) {
            Ok(TemplateLayers { layers, shown, root }) => {
                return Ok(Order { template: template.to_owned(), layers, shown, root, ..Order::default() });
            }
            Err(problem) if problem.is_no_template() => problem,
            Err(problem) => return Err(problem),
        };
        if let Some((template, build, kept)) = self.ready(key, template).await? {
            return self.order_of_kept(&template, &build, &kept);
        }
        // A snapshot is a template here.
        match self.snapshot_of(key, template).await {
            Ok(snapshot) => self.order_from(&snapshot),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => Err(unknown),
            Err(problem) => Err(problem),
        }
    }

    /// What a base is, as layers and what they show.
    pub(crate) fn base(&self, base: &str) -> Result<TemplateLayers, Problem> {
        let listed = base.strip_prefix(LISTED);
        let Some(image) = listed.or_else(|| base.strip_prefix(IMAGE)) else { return self.templates.find(base) };
        let mut made = self.templates.find(BASE)?;
        // One of the key's list was judged when it became a base; the root of a ceiling is judged as such, each time.
        made.root = listed.map(str::to_owned);
        made.layers.push(set("fs.root", &format!("{IMAGE}{image}")));
        // Whatever user the image names: home folder and steps are this one's.
        made.layers.push(set("process.user", "user"));
        Ok(made)
    }

    /// A sandbox of a build.
    pub(super) fn order_of_kept(
        &self,
        template: &Template,
        build: &Build,
        kept: &BuiltTemplate,
    ) -> Result<Order, Problem> {
        let TemplateLayers { mut layers, shown, root } = self.base(&kept.base)?;
        layers.push(set("workspace.at", &kept.place));
        layers.extend(build.cpus.map(|cpus| PolicyLayer::Set(format!("limits.cpus={cpus}"))));
        if let Some(mib) = build.memory_mib {
            layers.extend(self.of_memory(&layers, mib)?);
        }
        let env = variables(&layers, kept);
        layers.extend(env.into_iter().map(|(name, value)| flag(&name, &value)));
        let mut ours = BTreeMap::from([
            (labels::WORKDIR.to_owned(), kept.workdir.clone()),
            (labels::BASE.to_owned(), kept.base.clone()),
        ]);
        let begin = (kept.begin != live::Begin::default()).then(|| kept.begin.clone());
        if let Some(begin) = &begin {
            ours.insert(labels::BEGIN.to_owned(), serde_json::to_string(begin).unwrap_or_default());
        }
        let from = Some(kept.snapshot.clone()).filter(|id| !id.is_empty());
        Ok(Order { template: template.id.clone(), layers, shown, root, begin, ours, from, ..Order::default() })
    }

    /// So much memory, and no more that can be written than is there: that lies in memory, and a policy that says more is refused.
    fn of_memory(&self, layers: &[PolicyLayer], mib: u64) -> Result<Vec<PolicyLayer>, Problem> {
        let policy = load(layers, self.environment()).map_err(Problem::all)?.policy;
        let half = mib.div_euclid(2).max(1);
        let beyond = |size: Option<u64>, most: u64| size.is_some_and(|size| size > most.saturating_mul(MIB));
        let disk = beyond(policy.limits.disk.map(|disk| disk.0), mib).then(|| format!("limits.disk={mib}M"));
        let tmp = beyond(Some(policy.fs.tmp.0), half).then(|| format!("fs.tmp={half}M"));
        let memory = Some(format!("limits.memory={mib}M"));
        Ok([memory, disk, tmp].into_iter().flatten().map(PolicyLayer::Set).collect())
    }

    /// Takes a template away with all that was made for it.
    pub(crate) async fn take_away(&self, template: &Template) -> Result<(), Problem> {
        for work in self.works.of(&template.id) {
            work.cancel("the template was removed");
        }
        let id = template.id.clone();
        let states = self.in_shelf(move |shelf| {
            shelf.remove(&id)?;
            shelf.forget_step_states(|state| state.template == id)
        });
        let mut gone = states.await?;
        gone.extend(template.snapshots().map(str::to_owned));
        self.forget_snapshots(gone).await;
        Ok(())
    }

    /// Removes snapshots of builds that nothing is made of any more; one that is gone already is none.
    pub(super) async fn forget_snapshots(&self, ids: Vec<String>) {
        if ids.is_empty() {
            return;
        }
        // Where it is not known what is made of them they stay, and are looked at again with the next ones.
        let Ok(ids) = self.in_shelf(move |shelf| shelf.unnamed(ids)).await else { return };
        let removed = self.in_state(move |state| {
            for id in ids {
                if sandbox::snapshot::remove(state, &id).is_err() {
                    // Somebody was first, or `gc` will be next.
                }
            }
            Ok(())
        });
        drop(removed.await);
    }

    /// Gives a build more tags; its id.
    pub(crate) async fn tag(&self, key: &Key, target: &str, tags: Vec<String>) -> Result<String, Problem> {
        let (template, build, _) = self.ready(key, target).await?.ok_or_else(|| no_such(target))?;
        let given = build.id.clone();
        let set = move |template: &mut Template| {
            let at_ms = now_ms();
            template.tags.extend(tags.into_iter().map(|tag| (tag, Tag { build: given.clone(), at_ms })));
            if template.tags.len() > MAX_TAGS {
                return Err(Problem::invalid("tags", &format!("a template has {MAX_TAGS} tags at most")));
            }
            Ok(template.let_go())
        };
        let gone = self.in_shelf(move |shelf| shelf.change(&template.id, set)).await?;
        self.forget_snapshots(gone).await;
        Ok(build.id)
    }

    /// Takes tags away; a build without one is let go.
    pub(crate) async fn untag(&self, key: &Key, name: &str, tags: Vec<String>) -> Result<(), Problem> {
        let template = self.built(key, name).await?.ok_or_else(|| no_such(name))?;
        let unset = move |template: &mut Template| {
            template.tags.retain(|tag, _| !tags.contains(tag));
            Ok(template.let_go())
        };
        let gone = self.in_shelf(move |shelf| shelf.change(&template.id, unset)).await?;
        self.forget_snapshots(gone).await;
        Ok(())
    }
}

/// Whether a template of these layers has a Python of its own: what is installed for a user is not seen by it.
pub(super) fn has_python(layers: &[PolicyLayer]) -> bool {
    path_of(layers).is_some_and(|path| path.contains(&format!("{INSIDE}/venv/bin")))
}

/// The variables of the sandboxes of a template: what steps installed in the home folder is found.
fn variables(layers: &[PolicyLayer], kept: &BuiltTemplate) -> BTreeMap<String, String> {
    let path = kept.path.as_deref().or_else(|| path_of(layers)).unwrap_or(PATH);
    let mut all = BTreeMap::from([("PATH".to_owned(), format!("{HOME}/.local/bin:{path}"))]);
    if has_python(layers) {
        all.insert("PYTHONPATH".to_owned(), python_folder());
        all.insert("PATH".to_owned(), format!("{HOME}/.local/bin:{}/bin:{path}", python_folder()));
    }
    all.extend(kept.env.clone());
    all
}

/// Where packages go that a template's own Python finds.
pub(super) fn python_folder() -> String {
    format!("{HOME}/.local/lib/python")
}

fn path_of(layers: &[PolicyLayer]) -> Option<&str> {
    layers.iter().rev().find_map(|layer| match layer {
        PolicyLayer::Flag { name, value } if name == "--env" => value.strip_prefix("PATH="),
        PolicyLayer::Flag { .. } | PolicyLayer::Set(_) | PolicyLayer::Document(_) => None,
    })
}

fn flag(name: &str, value: &str) -> PolicyLayer {
    PolicyLayer::Flag { name: "--env".to_owned(), value: format!("{name}={value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steps_install_in_the_home_folder_is_found_and_what_they_say_wins() {
        let said = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let mut kept = BuiltTemplate { env: said("A", "1"), ..BuiltTemplate::default() };
        let plain = variables(&[], &kept);
        assert_eq!(plain["PATH"], format!("/home/user/.local/bin:{PATH}"));
        assert!(plain["A"] == "1" && !plain.contains_key("PYTHONPATH"));
        let own = [flag("PATH", &format!("{INSIDE}/venv/bin:/bin"))];
        assert_eq!(variables(&own, &kept)["PYTHONPATH"], "/home/user/.local/lib/python");
        kept.path = Some("/opt/go/bin:/bin".to_owned());
        assert_eq!(variables(&[], &kept)["PATH"], "/home/user/.local/bin:/opt/go/bin:/bin");
        kept.env = said("PATH", "/x");
        assert_eq!(variables(&own, &kept)["PATH"], "/x");
    }
}
