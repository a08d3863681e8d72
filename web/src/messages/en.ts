import { access, audit, enrol, pools, settings, webhooks } from "./en/admin";
import { common } from "./en/common";
import { events } from "./en/events";
import { authority, relays, upgrades } from "./en/fleet";
import { hosts } from "./en/hosts";
import { overview } from "./en/overview";
import { plans } from "./en/plans";
import { process, processes } from "./en/processes";
import { register } from "./en/register";
import { shell } from "./en/shell";
import { signIn } from "./en/sign-in";
import { states } from "./en/states";
import { operate, tasks } from "./en/tasks";
import { terms } from "./en/terms";

export const en = {
  access,
  audit,
  authority,
  common,
  enrol,
  events,
  hosts,
  operate,
  overview,
  plans,
  pools,
  process,
  processes,
  register,
  relays,
  settings,
  shell,
  signIn,
  states,
  tasks,
  terms,
  upgrades,
  webhooks,
};
