import type { Messages } from ".";
import { access, audit, enrol, pools, settings, webhooks } from "./zh/admin";
import { common } from "./zh/common";
import { events } from "./zh/events";
import { authority, relays, upgrades } from "./zh/fleet";
import { hosts } from "./zh/hosts";
import { overview } from "./zh/overview";
import { plans } from "./zh/plans";
import { process, processes } from "./zh/processes";
import { register } from "./zh/register";
import { shell } from "./zh/shell";
import { signIn } from "./zh/sign-in";
import { states } from "./zh/states";
import { operate, tasks } from "./zh/tasks";
import { terms } from "./zh/terms";

export const zh: Messages = {
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
